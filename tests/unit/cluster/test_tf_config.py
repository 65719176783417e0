"""The reader of TF_CONFIG: what it refuses, and that nothing else goes wrong in it."""

from __future__ import annotations

import pytest
from hypothesis import given

from ps_train.cluster.tf_config import parse_tf_config
from ps_train.errors import ConfigError
from tests.cluster_strategies import TF_CONFIG_TEXTS, clusters, tf_config

FORM = "allowed: host:port with a port from 1 to 65535, such as localhost:2222"


def _refusal(function, *arguments):
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    return str(caught.value)


@given(clusters())
def test_a_valid_tf_config_comes_back_as_it_was(described):
    """Written as JSON, dense where it can be, and read again, a cluster and its task are the same."""
    addresses, job, index = described
    for dense in (True, False):
        found = parse_tf_config(tf_config(as_json(addresses, dense), job, index))
        assert (found.job, found.index, found.addresses) == (job, index, addresses)


def as_json(addresses, dense):
    """Returns the cluster part: lists where `dense` and there are no gaps, else objects."""
    return {job: list(tasks.values()) if dense and list(tasks) == list(range(len(tasks)))
            else {str(index): address for index, address in tasks.items()} for job, tasks in addresses.items()}


@pytest.mark.parametrize(("text", "message"), [
    ("{", "TF_CONFIG: is not JSON: Expecting property name enclosed in double quotes at line 1, column 2; "
     "there it ends"),
    ('{"cluster"', "TF_CONFIG: is not JSON: Expecting ':' delimiter at line 1, column 11; there it ends"),
    ("{\n'cluster': {}}", "TF_CONFIG: is not JSON: Expecting property name enclosed in double quotes at line 2, "
     "column 1; there it reads \"'cluster': {}}\""),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", True),
     "TF_CONFIG: task index: got True; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 0.0),
     "TF_CONFIG: task index: got 0.0; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", -1),
     "TF_CONFIG: task index: got -1; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", None),
     "TF_CONFIG: task index: got None; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", "0 "),
     "TF_CONFIG: task index: got '0 '; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 10**20),
     "TF_CONFIG: task index: got 100000000000000000000; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 1),
     "TF_CONFIG: task index is 1; allowed: 0, the indices of job 'worker'"),
    (tf_config({"ps": ["a:1"], "worker": {"0": "b:1", "7": "c:1"}}, "worker", 1),
     "TF_CONFIG: task index is 1; allowed: 0, 7, the indices of job 'worker'"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "chief"),
     "TF_CONFIG: task type is 'chief'; allowed: ps, worker, evaluator"),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, ["worker"]),
     "TF_CONFIG: task type is ['worker']; allowed: ps, worker, evaluator"),
    (tf_config({"ps": ["a:1"], "workers": ["b:1"]}),
     "TF_CONFIG: cluster['workers']: unknown job; allowed: ps, worker, chief, master, evaluator"),
    (tf_config({"ps": ["a:1"], "worker": "b:1"}),
     "TF_CONFIG: cluster['worker']: got 'b:1'; allowed: a list of host:port, or an object of index: host:port"),
    (tf_config({"ps": ["a:1"], "worker": []}),
     "TF_CONFIG: cluster['worker']: got []; allowed: a list of host:port, or an object of index: host:port"),
    (tf_config({"ps": [None], "worker": ["b:1"]}), f"TF_CONFIG: cluster['ps'][0]: got None; {FORM}"),
    (tf_config({"ps": ["a:1", "b"], "worker": ["b:1"]}), f"TF_CONFIG: cluster['ps'][1]: got 'b'; {FORM}"),
    (tf_config({"ps": {"x": "a:1"}, "worker": ["b:1"]}),
     "TF_CONFIG: cluster['ps'] index: got 'x'; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": {"٣": "a:1"}, "worker": ["b:1"]}),
     "TF_CONFIG: cluster['ps'] index: got '٣'; allowed: an integer from 0 to 1022"),
    (tf_config({"ps": {"1": "a:1", "01": "b:1"}, "worker": ["c:1"]}),
     "TF_CONFIG: cluster['ps']: index 1 is there twice"),
    (tf_config({"ps": ["a:1"], "worker": ["a:1"]}),
     "address a:1 is given to both ps:0 and worker:0; each task needs its own"),
    (tf_config({"worker": ["b:1"]}),
     "TF_CONFIG: cluster names no ps; allowed: at least one, such as \"ps\": [\"host:2222\"]"),
    (tf_config({"ps": ["b:1"]}, "ps"),
     "TF_CONFIG: cluster names no worker and no chief; allowed: at least one of them"),
    (tf_config({"ps": ["a:1"], "chief": ["b:1", "c:1"]}, "chief"),
     "TF_CONFIG: cluster['chief']: names 2 tasks; allowed: 1"),
    (tf_config({"ps": ["a:1"], "master": {"1": "b:1"}, "worker": ["c:1"]}),
     "TF_CONFIG: cluster['master'] index: got 1; allowed: 0, as there is one"),
    (tf_config({"ps": ["a:1"], "chief": ["b:1"], "master": ["c:1"]}, "chief"),
     "TF_CONFIG: cluster names both a chief and a master; they are the same role, keep one"),
    ('{"cluster": {"ps": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}, "task": {"type": "ps", "index": 0}}',
     "TF_CONFIG: 'ps' is there twice in one object; keep one"),
])
def test_refuses_a_wrong_tf_config(text, message):
    """What is malformed, unknown, missing or contradictory is one line that says where."""
    assert _refusal(parse_tf_config, text) == message


@pytest.mark.parametrize(("text", "missing"), [
    ("{}", "cluster"), ("[]", "cluster"), ("null", "cluster"), ("3", "cluster"), ('"text"', "cluster"),
    ('{"cluster": {}}', "cluster"), ('{"cluster": ["a:1"]}', "cluster"),
    ('{"task": {"type": "ps", "index": 0}}', "cluster"),
    ('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}', "task"),
    ('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": []}', "task"),
    ('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {}}', "task"),
])
def test_a_tf_config_without_a_part_is_shown_how_it_should_read(text, missing):
    """The example in the message is itself a TF_CONFIG that is accepted."""
    message = _refusal(parse_tf_config, text)
    assert message.startswith(f"TF_CONFIG: {missing!r} is missing or no object; it should read like ")
    assert parse_tf_config(message.partition(" like ")[2]).job == "worker"


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"cluster": ' * 50_000])
def test_a_tf_config_that_would_break_the_reader_is_refused(text):
    """Deep nesting and endless numbers are a ConfigError of one line too."""
    message = _refusal(parse_tf_config, text)
    assert message.startswith("TF_CONFIG: ") and "\n" not in message and len(message) < 300


@given(TF_CONFIG_TEXTS)
def test_any_tf_config_is_a_cluster_or_a_config_error(text):
    """No text and no JSON raises anything but a ConfigError of one line."""
    try:
        found = parse_tf_config(text)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert found.addresses["ps"]
        assert found.is_dynamic or found.addresses.keys() & {"worker", "chief", "master"}
        assert found.job == "evaluator" or found.index in found.addresses[found.job]

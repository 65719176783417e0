"""The reader of TF_CONFIG: what it refuses, and that nothing else goes wrong in it."""

from __future__ import annotations

import pytest
from hypothesis import given

from ps_train.cluster.resolve import find_cluster
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.errors import ConfigError
from tests.cluster_strategies import TF_CONFIG_TEXTS, clusters, tf_config
from tests.errors import codes_of, error_of


@given(clusters())
def test_a_valid_tf_config_comes_back_as_it_was(described):
    """Written as JSON, dense where it can be, and read again, a cluster and its task are the same."""
    addresses, job, index = described
    for dense in (True, False):
        settings = parse_tf_config(tf_config(as_json(addresses, dense), job, index))
        assert (settings.job, settings.index, settings.addresses) == (job, index, addresses)


def as_json(addresses, dense):
    """Returns the cluster part: lists if `dense` and without gaps, else objects."""
    return {job: list(tasks.values()) if dense and list(tasks) == list(range(len(tasks)))
            else {str(index): address for index, address in tasks.items()} for job, tasks in addresses.items()}


@pytest.mark.parametrize(("text", "code", "values"), [
    ("{", "tf_config_not_json", ["line 1, column 2"]),
    ('{"cluster"', "tf_config_not_json", ["line 1, column 11"]),
    ("{\n'cluster': {}}", "tf_config_not_json", ["line 2, column 1", "\"'cluster': {}}\""]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", True), "tf_config_bad_index", ["True", "0 to 1022"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 0.0), "tf_config_bad_index", ["0.0"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", -1), "tf_config_bad_index", ["-1"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", None), "tf_config_bad_index", ["None"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", "0 "), "tf_config_bad_index", ["'0 '"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 10**20), "tf_config_bad_index", [str(10**20)]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "worker", 1), "tf_config_bad_index", ["1", "'worker'"]),
    (tf_config({"ps": ["a:1"], "worker": {"0": "b:1", "7": "c:1"}}, "worker", 1), "tf_config_bad_index", ["0, 7"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, "chief"), "tf_config_unknown_job",
     ["'chief'", "ps, worker, evaluator"]),
    (tf_config({"ps": ["a:1"], "worker": ["b:1"]}, ["worker"]), "tf_config_unknown_job", ["['worker']"]),
    (tf_config({"ps": ["a:1"], "workers": ["b:1"]}), "tf_config_unknown_job", ["'workers'"]),
    (tf_config({"ps": ["a:1"], "worker": "b:1"}), "tf_config_malformed", ["cluster['worker']", "'b:1'"]),
    (tf_config({"ps": ["a:1"], "worker": []}), "tf_config_malformed", ["cluster['worker']", "[]"]),
    (tf_config({"ps": [None], "worker": ["b:1"]}), "address_malformed", ["cluster['ps'][0]", "None"]),
    (tf_config({"ps": ["a:1", "b"], "worker": ["b:1"]}), "address_malformed", ["cluster['ps'][1]", "'b'"]),
    (tf_config({"ps": {"x": "a:1"}, "worker": ["b:1"]}), "tf_config_bad_index", ["cluster['ps']", "'x'"]),
    (tf_config({"ps": {"٣": "a:1"}, "worker": ["b:1"]}), "tf_config_bad_index", ["cluster['ps']", "'٣'"]),
    (tf_config({"ps": {"1": "a:1", "01": "b:1"}, "worker": ["c:1"]}), "tf_config_duplicate_key", ["cluster['ps']"]),
    (tf_config({"ps": ["a:1"], "worker": ["a:1"]}), "address_given_twice", ["ps:0 and worker:0"]),
    (tf_config({"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1", "b:1"]}), "address_given_twice",
     ["chief:0 and worker:1"]),
    (tf_config({"ps": ["a:1"], "chief": ["b:1"], "worker": ["b:1", "b:1"]}), "address_given_twice",
     ["worker:0 and worker:1"]),
    (tf_config({"ps": ["b:1"], "chief": ["b:1"], "worker": ["b:1"]}), "address_given_twice", ["ps:0 and worker:0"]),
    (tf_config({"worker": ["b:1"]}), "tf_config_without_ps", []),
    (tf_config({"ps": ["b:1"]}, "ps"), "tf_config_without_workers", []),
    (tf_config({"ps": ["a:1"], "chief": ["b:1", "c:1"]}, "chief"), "tf_config_two_chiefs", ["cluster['chief']", "2"]),
    (tf_config({"ps": ["a:1"], "master": {"1": "b:1"}, "worker": ["c:1"]}), "tf_config_bad_index", ["'master'"]),
    (tf_config({"ps": ["a:1"], "chief": ["b:1"], "master": ["c:1"]}, "chief"), "tf_config_two_chiefs", []),
    ('{"cluster": {"ps": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}, "task": {"type": "ps", "index": 0}}',
     "tf_config_duplicate_key", ["'ps'"]),
])
def test_refuses_a_wrong_tf_config(text, code, values):
    """Malformed, unknown, missing or contradictory parts are one line that says where."""
    error = error_of(parse_tf_config, text)
    assert codes_of(error) == [code] and "\n" not in str(error)
    assert all(value in str(error) for value in values)


@pytest.mark.parametrize("chief_job", ["chief", "master"])
@pytest.mark.parametrize(("job", "index", "name"), [
    ("", 0, "worker:0"), ("worker", 0, "worker:0"), ("worker", 1, "worker:1"), ("ps", 0, "ps:0"),
    ("evaluator", 0, "evaluator:0")])
def test_a_chief_that_is_listed_again_as_worker_0_is_one_task(caplog, chief_job, job, index, name):
    """As clusterone's TF_CONFIG lists it; the task of the chief, "" here, has either name, and worker 1 is number 1."""
    caplog.set_level("INFO")
    text = tf_config({"ps": ["a:1"], chief_job: ["Host:1"], "worker": ["host:1", "c:1"]}, job or chief_job, index)
    cluster = find_cluster(tf_config=text)
    assert cluster.addresses == {"ps": {0: "a:1"}, "worker": {0: "host:1", 1: "c:1"}}
    assert (cluster.task.name, cluster.is_chief) == (name, name == "worker:0")
    assert [cluster.number_of(worker) for worker in cluster.workers] == [0, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"TF_CONFIG lists {chief_job}:0 again, as worker:0; they are one task, worker:0, the chief"]


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
    error = error_of(parse_tf_config, text)
    assert codes_of(error) == ["tf_config_incomplete"] and repr(missing) in str(error)
    assert parse_tf_config(str(error).partition(" like ")[2]).job == "worker"


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"cluster": ' * 50_000])
def test_a_tf_config_that_would_break_the_reader_is_refused(text):
    """Deep nesting and endless numbers are a ConfigError of one line too."""
    error = error_of(parse_tf_config, text)
    assert error.code.startswith("tf_config_") and "\n" not in str(error) and len(str(error)) < 300


@given(TF_CONFIG_TEXTS)
def test_any_tf_config_is_a_cluster_or_a_config_error(text):
    """No text and no JSON raises anything but a ConfigError of one line."""
    try:
        settings = parse_tf_config(text)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert settings.addresses["ps"]
        assert settings.is_dynamic or settings.addresses.keys() & {"worker", "chief", "master"}
        assert settings.job == "evaluator" or settings.index in settings.addresses[settings.job]

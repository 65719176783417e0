"""Addresses, clusters and TF_CONFIGs, valid and nearly so, for property tests."""

from __future__ import annotations

import json

from hypothesis import strategies as st


def tf_config(cluster, job="worker", index=0):
    """Returns the text of TF_CONFIG."""
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


_LABELS = st.from_regex(r"[A-Za-z0-9_-]{1,63}", fullmatch=True)
_HOSTS = st.one_of(
    st.lists(_LABELS, min_size=1, max_size=3).map(".".join),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map("[{}]".format),
)
ADDRESSES = st.builds("{}:{}".format, _HOSTS, st.integers(1, 65535))


@st.composite
def clusters(draw):
    """A valid cluster and one of its tasks: job -> index -> address, job, index."""
    counts = {"ps": draw(st.integers(1, 4)), "worker": draw(st.integers(1, 4)), **draw(st.sampled_from(
        [{}, {"chief": 1}, {"master": 1}, {"evaluator": 2}, {"chief": 1, "evaluator": 1}]))}
    total = sum(counts.values())
    addresses = iter(draw(st.lists(ADDRESSES, min_size=total, max_size=total, unique_by=str.lower)))
    found = {}
    for job, count in counts.items():
        indices = [0] if job in ("chief", "master") else draw(st.one_of(
            st.just(range(count)), st.lists(st.integers(0, 99), min_size=count, max_size=count, unique=True)))
        found[job] = {index: next(addresses) for index in indices}
    job = draw(st.sampled_from(sorted(found)))
    return found, job, draw(st.sampled_from(sorted(found[job])))


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), ADDRESSES,
              st.sampled_from(["ps", "worker", "chief", "master", "evaluator"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["cluster", "task", "type", "index", "ps", "worker", "chief", "master", "0", "1", "x"]),
            inner, max_size=4)),
    max_leaves=12)
_NEAR_JSON = st.fixed_dictionaries({
    "cluster": st.one_of(_JSON, st.fixed_dictionaries({"ps": _JSON, "worker": _JSON})),
    "task": st.one_of(_JSON, st.fixed_dictionaries({"type": _JSON, "index": _JSON}))})
TF_CONFIG_TEXTS = st.one_of(st.one_of(_JSON, _NEAR_JSON).map(json.dumps), st.text())

"""The data of a plan: that of the training which the same flags start."""

from __future__ import annotations

import logging

import pytest

from ps_train.errors import MissingDataError
from ps_train.parts.plan import planning
from ps_train.parts.plan.flags import parse_plan
from tests.processes import REPO


@pytest.fixture
def without_mnist(monkeypatch):
    """MNIST cannot be fetched."""
    from data import mnist_files  # noqa: PLC0415 (from the checkout, which is the working directory)

    def refuse(*_):
        raise MissingDataError("no network", "use --dataset=data.digits")

    monkeypatch.chdir(REPO)
    monkeypatch.setattr(mnist_files, "ensure", refuse)


def test_a_plan_without_data_is_that_of_the_synthetic_digits(without_mnist, monkeypatch, caplog):
    """`launch` trains on them where the user has chosen no data; one line says so."""
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    config, plugins = planning._with_data(parse_plan(["--num_ps=1"], {})[0])
    assert (config.dataset, plugins.dataset.name) == ("data.digits", "data.digits")
    [line] = set(caplog.messages)  # pytest may have two handlers
    assert "no network" in line and "--dataset=data.digits" in line and "\n" not in line


@pytest.mark.parametrize("flag", ["--dataset=data.mnist", "--data_dir=/nowhere"])
def test_data_that_was_chosen_is_not_replaced(without_mnist, flag):
    """As by `launch`."""
    with pytest.raises(MissingDataError, match="no network"):
        planning._with_data(parse_plan([flag], {})[0])

"""Training leaves a record of each epoch, and has at least one."""

import pytest

from d2l_mgpu import scratch
from tests.package.test_scratch import small_data


def test_no_epochs_are_refused():
    with pytest.raises(ValueError, match=r"num_epochs must be .* but it is '2'"):
        scratch.train(1, 8, 0.1, num_epochs="2", load_data=small_data)
    with pytest.raises(ValueError, match="num_epochs must be an integer of at least 1"):
        scratch.train(1, 8, 0.1, num_epochs=0, load_data=small_data)


def test_training_reports_each_epoch_when_asked():
    epochs = []
    history = scratch.train(1, 48, 0.1, num_epochs=2, load_data=small_data, on_epoch=epochs.append)
    assert epochs == history and all(e.seconds > 0 for e in history)

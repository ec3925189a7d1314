"""A damaged checkpoint is named and never loaded; what was there before a failure stays."""

import dataclasses
import json
import os
import pickle
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from d2l_mgpu import launch
from d2l_mgpu.processes.group import process_group
from d2l_mgpu.train import CheckpointError, load_weights
from d2l_mgpu.train.checkpoint import check, find, load, save
from d2l_mgpu.train.checksums import seal
from d2l_mgpu.train.folder import steps

OLD, NEW = "step-00000003", "step-00000007"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A process group of one."""
    with process_group(60):
        yield


def state(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "model": {"W": torch.randn(20, 30, generator=generator), "n": torch.tensor(seed)},
        "optimizer": {"state.W.momentum_buffer": torch.randn(20, 30, generator=generator)},
        "ranks": {"0.random": torch.randn(5, generator=generator)},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two checkpoints, of steps 3 and 7."""
    for step in (3, 7):
        save(tmp_path, step, state(step), {"lr": 0.1, "step": step})
    return tmp_path


def test_what_was_saved_is_loaded(folder: Path) -> None:
    found = find(folder)
    assert found is not None
    checkpoint, problems = found
    assert (checkpoint.path, checkpoint.step, problems) == (folder / NEW, 7, [])
    assert checkpoint.facts == {"lr": 0.1, "step": 7}
    filled = state(0)
    load(checkpoint, filled)
    for part, entries in state(7).items():
        for name, value in entries.items():
            assert torch.equal(filled[part][name], value)


def test_weights_are_read_without_knowing_their_shapes(folder: Path) -> None:
    weights = load_weights(folder)
    assert weights.keys() == {"W", "n"}
    assert torch.equal(weights["W"], state(7)["model"]["W"])


def test_the_newest_two_are_kept(folder: Path) -> None:
    (folder / "step-notes").mkdir()  # not ours
    save(folder, 11, state(11), {})
    assert sorted(path.name for path in folder.iterdir()) == [NEW, "step-00000011", "step-notes"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def unreadable(file: Path) -> None:
    """As on a failing disk: the file is there, and reading it is an error (EIO)."""
    file.unlink()
    file.symlink_to("/proc/self/mem")


def of_another_kind(file: Path) -> None:
    file.write_text(json.dumps({"epoch": 3}))


def of_another_version(file: Path) -> None:
    shutil.rmtree(file.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("d2l_mgpu.train.checkpoint.FORMAT", "d2l_mgpu checkpoint 99")
        save(file.parent.parent, 7, state(7), {})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("__0_0.distcp", cut, "__0_0.distcp is damaged: its checksum does not fit"),
        ("__0_0.distcp", flip_a_bit, "__0_0.distcp is damaged: its checksum does not fit"),
        ("__0_0.distcp", Path.unlink, "__0_0.distcp is missing: the checkpoint is not complete"),
        (".metadata", flip_a_bit, ".metadata is damaged: its checksum does not fit"),
        ("checkpoint.json", cut, "checkpoint.json is damaged: its checksum does not fit"),
        ("checkpoint.json", flip_a_bit, "checkpoint.json is damaged: its checksum does not fit"),
        ("checkpoint.json", of_another_kind, "checkpoint.json is damaged"),
        ("checkpoint.json", of_another_version, "has format 'd2l_mgpu checkpoint 99', but this"),
        ("__0_0.distcp", unreadable, "__0_0.distcp cannot be read: Input/output error"),
        ("checkpoint.json", unreadable, "checkpoint.json cannot be read: Input/output error"),
        ("checkpoint.json", Path.unlink, "is no checkpoint: it has no checkpoint.json"),
    ],
)
def test_damage_is_named_and_the_one_before_is_used_when_asked_for(
    name: str, damage: Callable[[Path], None], message: str, folder: Path
) -> None:
    damage(folder / NEW / name)
    with pytest.raises(CheckpointError, match=message) as caught:
        find(folder)
    assert str(folder / NEW) in str(caught.value)
    assert "--fall-back" in str(caught.value)
    with pytest.raises(CheckpointError, match=message):
        load_weights(folder)
    found = find(folder, fall_back=True)
    assert found is not None
    checkpoint, problems = found
    assert (checkpoint.path, checkpoint.step, len(problems)) == (folder / OLD, 3, 1)
    assert message in problems[0]
    flip_a_bit(folder / OLD / "__0_0.distcp")
    with pytest.raises(CheckpointError, match="No checkpoint before it is left"):
        find(folder, fall_back=True)


def test_a_folder_without_checkpoints_is_a_fresh_start(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "not yet there") is None
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        load_weights(tmp_path)


def write_record(path: Path, **changes: Any) -> None:
    """Give the checkpoint at `path` another record, with checksums that fit: a forger can, too."""
    file = path / "checkpoint.json"
    record = json.loads(file.read_bytes()) | changes
    file.unlink()
    seal(path, {name: value for name, value in record.items() if value is not None})


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in ("format", "step", "facts", "tensors")),
        *({"format": []}, {"step": "7"}, {"step": 8}, {"facts": []}, {"tensors": 0}),
        {"tensors": {"model.W": None}},
        {"tensors": {"model.W": ["__0_0.distcp", -1, 10]}},
        {"tensors": {"model.W": ["__0_0.distcp", 0, 1.5]}},
        {"tensors": {"model.W": ["../step-00000003/__0_0.distcp", 0, 10]}},
    ],
    ids=str,
)
def test_a_record_that_describes_no_checkpoint_is_named(
    changes: dict[str, Any], folder: Path
) -> None:
    write_record(folder / NEW, **changes)
    with pytest.raises(CheckpointError, match=f"{NEW}(/checkpoint.json does not| has format)"):
        load_weights(folder)


@dataclass
class Evil:
    """What runs a command where it is unpickled."""

    file: Path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.file}",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    ("name", "dump"),
    [(".metadata", pickle.dump), ("__0_0.distcp", pickle.dump), ("__0_0.distcp", torch.save)],
)
def test_no_file_of_a_checkpoint_can_run_code(
    name: str, dump: Callable[..., None], folder: Path
) -> None:
    """Although all checksums fit: those of a stranger's checkpoint do."""
    file, code_has_run = folder / NEW / name, folder / "ran"
    places = check(folder / NEW).tensors
    with file.open("wb") as stream:
        dump(Evil(code_has_run), stream)
    if name == ".metadata":
        write_record(folder / NEW)
        load(check(folder / NEW), state(0))
        assert torch.equal(load_weights(folder)["W"], state(7)["model"]["W"])
    else:
        write_record(folder / NEW, tensors=places | {"model.W": [name, 0, file.stat().st_size]})
        for attempt in (lambda: load(check(folder / NEW), state(0)), lambda: load_weights(folder)):
            with pytest.raises(CheckpointError, match=f"{file} holds no tensor where model.W"):
                attempt()
    save(folder, 8, state(8), {})
    assert not code_has_run.exists()
    pickle.load(file.open("rb")) if dump is pickle.dump else torch.load(file, weights_only=False)
    assert code_has_run.exists()


def test_a_part_that_a_rank_does_not_see_is_named(folder: Path) -> None:
    checkpoint = check(folder / NEW)
    (folder / NEW / "__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match=f"{NEW}/__0_0.distcp cannot be read: No such file"):
        load(checkpoint, state(0))


@pytest.mark.parametrize(
    ("part", "name", "value", "what"),
    [
        ("optimizer", "state.W.momentum_buffer", None, r"momentum_buffer \(and 0 more\) is only"),
        ("optimizer", "another", torch.zeros(1), r"another \(and 0 more\) is only in one"),
        ("model", "W", torch.zeros(20, 30).double(), "of torch.float32, .* of torch.float64"),
        ("model", "W", torch.zeros(1, 30), r"model.W is \(20, 30\) of .* is \(1, 30\) of"),
        ("model", "n", torch.tensor(7.0), r"model.n is \(\) of torch.int64, but here it is \(\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_not_touched(
    part: str, name: str, value: Any, what: str, folder: Path
) -> None:
    wanted = state(0)
    wanted[part] |= {name: value}
    if value is None:
        del wanted[part][name]
    with pytest.raises(CheckpointError, match=f"{NEW} does not fit this run: .*{what}"):
        load(check(folder / NEW), wanted)
    assert torch.equal(wanted["ranks"]["0.random"], state(0)["ranks"]["0.random"])


@pytest.mark.parametrize(
    ("step", "part", "facts", "error", "message"),
    [
        (-1, {}, {}, ValueError, "step must be a whole number of at least 0, not -1"),
        (1.5, {}, {}, ValueError, "step must be .* not 1.5"),
        (True, {}, {}, ValueError, "step must be .* not True"),
        (8, {"lr": 0.1}, {}, TypeError, "holds tensors, but part.lr is a float: put numbers"),
        (8, {"f": print}, {}, TypeError, "part.f is a builtin_function_or_method"),
        (8, {}, {"f": print}, TypeError, "not JSON serializable"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(
    step: Any, part: dict, facts: dict, error: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(error, match=message):
        save(folder, step, {"part": part}, facts)
    assert sorted(path.name for path in folder.iterdir()) == [OLD, NEW]


def test_damaged_newer_ones_do_not_count_after_a_step_back(folder: Path) -> None:
    for step in (4, 5):  # step 7 is damaged, say
        save(folder, step, state(step), {})
    assert [path.name for path in steps(folder)] == [NEW, "step-00000005", "step-00000004"]


def test_a_folder_that_went_away_is_named(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()
    with pytest.raises(CheckpointError, match=f"could not be written to {folder}, where .* free"):
        save(folder, 11, state(11), {})


def test_a_link_in_the_place_of_a_checkpoint_is_not_followed(folder: Path) -> None:
    keep = folder / "keep"
    (folder / OLD).rename(keep)
    (folder / OLD).symlink_to(keep)
    (folder / ".writing-00000011").symlink_to(keep)
    with pytest.raises(CheckpointError, match=r"could not be written .*File exists"):
        save(folder, 11, state(11), {})
    save(folder, 11, state(11), {})
    assert sorted(path.name for path in folder.iterdir()) == ["keep", NEW, "step-00000011"]
    assert (keep / "__0_0.distcp").exists()


def save_on_a_disk_of_its_own(folder: Path) -> str:
    own = folder / os.environ["RANK"]
    own.mkdir()
    try:
        save(own, 11, {"ranks": {os.environ["RANK"]: torch.ones(3)}}, {})
        return "saved"
    except CheckpointError as error:
        return str(error)


def test_a_folder_that_the_nodes_do_not_share_is_no_place_for_checkpoints(tmp_path: Path) -> None:
    for message in launch(save_on_a_disk_of_its_own, tmp_path, num_devices=2):
        assert "__1_0.distcp was written by another node" in message
        assert "one folder that all nodes share" in message
    assert not steps(tmp_path / "0")


def fill_the_disk(folder: Path) -> str:
    """Save with no room for more than 4 KB a file, which a full disk is the usual reason for."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        save(folder, 11, {"model": {"W": torch.ones(10_000)}}, {})
        return "saved"
    except CheckpointError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def load_what_only_rank_0_sees(folder: Path) -> str:
    found = check(folder / NEW)
    if os.environ["RANK"] == "1":
        found = dataclasses.replace(found, path=folder / "not mounted")
    with pytest.raises(CheckpointError) as error:
        load(found, state(0))
    return str(error.value)


def test_what_fails_on_one_rank_is_said_by_every_rank_and_earlier_checkpoints_stay(
    folder: Path,
) -> None:
    def both(folder: Path) -> tuple[str, str]:
        return load_what_only_rank_0_sees(folder), fill_the_disk(folder)

    for unseen, message in launch(both, folder, num_devices=2):
        assert f"{folder}/not mounted/__0_0.distcp cannot be read: No such file" in unseen
        assert f"The checkpoint of step 11 could not be written to {folder}" in message
        assert "earlier checkpoints are untouched" in message
    assert sorted(path.name for path in folder.iterdir()) == [OLD, NEW]
    assert check(folder / NEW).facts["step"] == 7

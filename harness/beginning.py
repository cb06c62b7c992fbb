"""A campaign's directory: made anew with its inputs and its journal's first line, or found again for a resume."""

import shutil
from pathlib import Path

from harness.errors import BenchError, RecordError, UsageError
from harness.evidence import journal, store
from harness.evidence.ladder import ORACLE
from harness.evidence.prompts import TEXTS
from harness.evidence.schema import Start
from harness.plan import CampaignPlan
from harness.preparing import Prepared, campaign_name
from harness.unwritable import unwritable


def begin(directory: Path, prepared: Prepared, start: Start) -> None:
    """The inputs as they were, then the journal's first line. Raises RecordError, and then there is no directory."""
    dumped = start.model_dump(mode="json")
    try:
        _keep_inputs(directory, prepared)
        journal.append(directory, journal.Event(at=journal.now_utc(), event="campaign-started", start=dumped))
    except RecordError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RecordError(f"{str(error).removesuffix(', then --resume')}; nothing was started") from None


def _keep_inputs(directory: Path, prepared: Prepared) -> None:
    """The suite, the texts that prompts of token ids are made of, and the answers of another campaign's oracle."""
    if prepared.suite_path is not None:
        store.write_atomic(directory / store.SUITE, prepared.suite_path.read_bytes())
    if prepared.texts:
        try:
            (directory / TEXTS).mkdir()
        except OSError as error:
            raise unwritable(directory / TEXTS, error) from None
    for name, data in prepared.texts.items():
        store.write_atomic(directory / TEXTS / f"{name}.txt", data)
    if prepared.oracle is not None:
        store.write_atomic(directory / ORACLE, prepared.oracle)


def existing(directory: Path) -> Path:
    """The directory of a campaign to go on with. Raises UsageError for what is none."""
    if not (directory / journal.NAME).is_file():
        if journal.CAMPAIGN.match(directory.name) and directory.is_dir():
            raise UsageError(f"{directory.name} has no {journal.NAME}: {journal.NOTHING}")
        raise UsageError(
            f"{directory.name or directory} is no campaign directory (it has no {journal.NAME}); give the one that was "
            "interrupted"
        )
    return directory.resolve()


def new_directory(out: Path, plan: CampaignPlan) -> Path:
    """A new directory below ``out`` that is nobody else's. Raises RecordError or UsageError when it can't be made."""
    base = campaign_name(plan)
    for number in range(1, 1000):
        directory = out / (base if number == 1 else f"{base}.{number}")
        try:
            directory.mkdir(parents=True)
        except (FileExistsError, NotADirectoryError):
            if not out.is_dir():
                raise UsageError(f"{out} is no directory, or leads through a file; choose another --out") from None
        except OSError as error:
            raise RecordError(
                f"{out} can't hold a campaign ({error.strerror}); free space or choose another --out"
            ) from None
        else:
            return directory.resolve()
    raise BenchError(f"{out} holds a thousand campaigns of this second; choose another --out")

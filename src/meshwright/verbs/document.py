"""Documents: a verb's answer as one JSON document, written whole or not at all, and plan files read back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from meshwright import catalog
from meshwright.catalog.loader import unreadable
from meshwright.costmodel import rules
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.output import refuse_directory, unwritable, whole_file
from meshwright.specs.estimate import Estimate
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout
from meshwright.specs.model import ModelSpec
from meshwright.specs.plan import Assumed, Plan
from meshwright.specs.report import EstimateReport

VERSION = 1


def schema(verb: str) -> str:
    """The tag of a verb's document."""
    return f"meshwright/{verb}/{VERSION}"


def rule_text(rule: str) -> str:
    """What a rule demands, in the language of the user."""
    return _(rules()[rule])


def document(verb: str, result: BaseModel) -> dict[str, Any]:
    """The JSON document of ``result``: plain dicts, lists, numbers and text, tagged with its ``schema``.

    Numbers that JSON cannot hold (infinite, not a number) become null.
    """
    # Through text: in Python objects pydantic leaves infinities as they are.
    fields = json.loads(result.model_dump_json())
    if isinstance(result, EstimateReport):
        fields = fields.pop("estimate") | fields
    if isinstance(result, Plan) and not result.layouts:
        fields["chosen"] = None
    if isinstance(result, Plan) and result.placement is None:
        # A row a rank: there only where it was asked for.
        del fields["placement"]
    return {"schema": schema(verb), **fields}


def render(verb: str, result: BaseModel) -> str:
    """The document as text, two spaces deep, with a newline at its end."""
    return json.dumps(document(verb, result), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` whole or not at all: a reader sees the old file or the new one.

    Raises InputError MW-E411 (a directory) or MW-E416 (cannot be written).
    """
    with whole_file(path) as stream:
        stream.write(text.encode())


def check_writable(path: Path | None) -> None:
    """Refuse an output file before the work is done. Raises what ``write_whole`` would."""
    if path is None:
        return
    refuse_directory(path)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise unwritable(
            path,
            FileNotFoundError(2, os.strerror(2)) if not path.parent.is_dir() else PermissionError(13, os.strerror(13)),
        )


def check_apart(*paths: Path | None) -> None:
    """Refuse one file for two outputs, of which the later would replace the earlier. Raises InputError MW-E417."""
    seen: set[Path] = set()
    for path in paths:
        # A device or a pipe takes one after the other.
        if path is None or (path.exists() and not path.is_file()):
            continue
        if (whole := path.resolve()) in seen:
            raise InputError(
                "MW-E417",
                _("it is named for two outputs."),
                where=str(path),
                nearest=_("Give each of --out, --report and --timeline a file of its own."),
            )
        seen.add(whole)


def read_text(path: Path, *, if_empty: str | None = None) -> str:
    """A text file that a person named; ``if_empty`` says what to do about an empty one.

    Raises InputError MW-E410 (missing), MW-E411 (directory), MW-E412 (empty), MW-E413 (not text), and
    EnvironmentLackError MW-E410 where it may not be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise InputError("MW-E411", _("this is a directory."), where=str(path), nearest=_("Name a file.")) from None
    except UnicodeDecodeError:
        raise InputError("MW-E413", _("this is not a text file."), where=str(path)) from None
    except PermissionError as error:
        raise unreadable("MW-E410", path, error) from None
    except OSError as error:
        raise InputError(
            "MW-E410",
            _("cannot be read: {reason}.").format(reason=error.strerror or error),
            where=str(path),
            nearest=_nearby(path),
        ) from None
    if not text.strip():
        raise InputError(
            "MW-E412",
            _("the file is empty."),
            where=str(path),
            nearest=if_empty,
        )
    return text


def _nearby(path: Path) -> str | None:
    folder = path.parent if path.parent.is_dir() else Path()
    names = sorted(p.name for p in folder.iterdir() if p.suffix == path.suffix)
    return did_you_mean(path.name, names) if names else None


def read_plan(path: Path) -> dict[str, Any]:
    """The document of a plan file. Raises InputError MW-E410..MW-E413."""
    return _read(path, ("plan",))


def read_answer(path: Path) -> dict[str, Any]:
    """The document of a plan or an estimate. Raises InputError MW-E410..MW-E413."""
    return _read(path, ("plan", "estimate"))


def _read(path: Path, verbs: tuple[str, ...]) -> dict[str, Any]:
    text = read_text(path, if_empty=_("`mw plan ... --out {file}` writes one.").format(file=path.name))
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _not_a_plan(path, str(error)) from None
    if not isinstance(found, dict) or found.get("schema") not in [schema(verb) for verb in verbs]:
        tag = found.get("schema") if isinstance(found, dict) else None
        raise _not_a_plan(path, _("its schema is {tag}").format(tag=tag) if tag else _("it has no schema tag"))
    return found


def _not_a_plan(path: Path, reason: str) -> InputError:
    return InputError(
        "MW-E413",
        _("this is not a plan ({reason}).").format(reason=reason),
        where=str(path),
        nearest=_("`mw plan ... --out {file}` writes one.").format(file="plan.json"),
    )


class Picked(NamedTuple):
    """One layout of a plan file with everything it belongs to."""

    job: TrainingJob
    cluster: Cluster
    layout: Layout
    estimate: Mapping[str, Any]
    assumed: dict[str, Assumed]


def pick(path: Path, number: int = 1) -> Picked:
    """Layout ``number`` (from 1) of the plan file ``path``. Raises InputError MW-E410..MW-E414."""
    return pick_from(read_plan(path), path, number)


def pick_from(plan: Mapping[str, Any], path: Path, number: int = 1) -> Picked:
    """Layout ``number`` of the plan, or the only one of the estimate, that was read from ``path``."""
    layouts = [plan] if plan.get("schema") == schema("estimate") else plan.get("layouts")
    if not isinstance(layouts, list) or not layouts:
        raise InputError(
            "MW-E414",
            _("this plan holds no layout: nothing fits."),
            where=str(path),
            nearest=_("Its remedies say what would."),
        )
    if not 1 <= number <= len(layouts):
        raise InputError(
            "MW-E414",
            _("there is no layout {number}.").format(number=number),
            where=f"{path} --pick",
            nearest=_("The plan holds 1 to {last}.").format(last=len(layouts)),
        )
    try:
        job, cluster = reread(plan["model"], plan["cluster"], plan["job"])
        assumed = {name: Assumed.model_validate(said) for name, said in plan["assumed"].items()}
        chosen = layouts[number - 1]
        if chosen is plan:
            chosen = {name: plan[name] for name in Estimate.model_fields if name in plan}
        return Picked(job, cluster, Layout.model_validate(chosen["layout"]), chosen, assumed)
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise _not_a_plan(path, reason) from None


def reread(model: Any, cluster: Any, job: Any) -> tuple[TrainingJob, Cluster]:
    """Job and cluster out of what ``describe`` made of them. Raises what pydantic raises, and KeyError, TypeError."""
    spec = ModelSpec.model_validate({name: model[name] for name in ModelSpec.model_fields if name in model})
    place = Cluster.model_validate({name: cluster[name] for name in Cluster.model_fields if name in cluster})
    fields = {name: job[name] for name in TrainingJob.model_fields if name in job}
    return TrainingJob.model_validate(fields | {"model": spec}), place


def called(cluster: Cluster) -> str:
    """The text of the cluster as people wrote it, with what was changed of its machines since (by --set, a remedy)."""
    try:
        usual = catalog.cluster(cluster.text)[0]
    except InputError:  # a file that is gone
        return cluster.text
    changes = [
        f"cluster.{name}={getattr(cluster, name)}"
        for name in ("n_nodes", "gpus_per_node")
        if getattr(cluster, name) != getattr(usual, name)
    ]
    if cluster.gpu.name != usual.gpu.name:
        changes.append(f"cluster.gpu={cluster.gpu.name}")
    return (
        _("{cluster} with {changes}").format(cluster=cluster.text, changes=", ".join(changes))
        if changes
        else usual.text
    )


def describe(job: TrainingJob, cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Model, cluster and job for a document: all their fields (so that they can be read back) and a few sums."""
    model = job.model.model_dump(mode="json") | {
        "n_layers": job.model.n_layers,
        "n_parameters": parameter_count(job.model),
    }
    place = cluster.model_dump(mode="json") | {"n_gpus": cluster.n_gpus, "name": called(cluster)}
    return model, place, job.model_dump(mode="json", exclude={"model"}) | {"tokens_per_step": job.tokens_per_step}

"""`harness shrink`: a mini model that takes a big one's code paths, from its config.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.words import positive
from harness.errors import UsageError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "shrink",
        help="a mini model that takes a big model's code paths",
        description="Derives a mini model from a config.json; serve it with --load-format dummy.",
        allow_abbrev=False,
    )
    parser.add_argument("model", type=Path, metavar="CONFIG_OR_MODEL_DIR", help="a config.json, or the folder of one")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the mini model's folder")
    parser.add_argument("--drafter", type=Path, metavar="CONFIG_OR_MODEL_DIR", help="shrunk with its target")
    parser.add_argument("--drafter-out", type=Path, metavar="DIR", help="the mini drafter's folder")
    ranks = "ranks of the mini model that its heads and widths must divide over (default 1)"
    parser.add_argument("--tensor-parallel-size", type=positive, default=1, metavar="N", help=ranks)
    like = "ranks of the full model; one of the mini's is like one of them (default: what divides, up to 8)"
    parser.add_argument("--full-tensor-parallel-size", type=positive, metavar="N", help=like)
    parser.add_argument("--unquantised", action="store_true", help="leave the quantisation out")
    parser.set_defaults(command=_shrink)


def _shrink(words: argparse.Namespace) -> int:
    from harness import shrink
    from harness.shrink import files

    if (words.drafter is None) != (words.drafter_out is None):
        raise UsageError("--drafter and --drafter-out belong together", fix="give both, or neither")
    models = [words.model, *([words.drafter] if words.drafter else [])]
    folders = [words.out, *([words.drafter_out] if words.drafter else [])]
    files.check_places(models, folders)
    (config, _), *more = read = [files.read(model) for model in models]
    try:
        made = shrink.shrink(
            config,
            draft=more[0][0] if more else None,
            tensor_parallel_size=words.tensor_parallel_size,
            full_tensor_parallel_size=words.full_tensor_parallel_size,
            quantised=not words.unquantised,
        )
    except UsageError as error:
        raise UsageError(f"{' with '.join(map(str, models))}: {error.what}", fix=error.fix) from error
    files.make(folders)
    for mini, folder, (_, digest) in zip(filter(None, made), folders, read, strict=True):
        files.write(mini, folder, digest=digest)
        print("\n".join(files.words(mini, folder)))
    return 0

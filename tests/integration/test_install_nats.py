"""deploy/install-nats with stand-ins for the machine's package tools, so no network is needed.

Each test gives the script a PATH of its own: the few system tools it may use and the stand-ins of the test.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.nats import INSTALLER

TOOLS = "sh awk basename cat chmod cp dirname find grep head mkdir mktemp mv printf rm sed sleep tail touch tr"

DEB822 = """\
# the machine's own
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /keys/machine.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By: /keys/machine.gpg
"""

THIRD_PARTY = """\
Types: deb
URIs: http://stranger.example/things
Suites: nodistro
Components: main
Signed-By: /keys/stranger.gpg

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
"""

APT_GET = """\
while [ $# -gt 0 ]; do case $1 in -c) conf=$2; shift;; update|download) verb=$1;; esac; shift; done
list=$(sed -n 's/^Dir::Etc::SourceList "\\(.*\\)";/\\1/p' "$conf")
suite=$(sed -n -e 's/^Suites: //p' -e 's/^deb \\(\\[.*\\] \\)*[^ ]* \\([^ ]*\\) .*/\\2/p' "$list")
echo "$verb $suite" >> "$RECORD/calls"
cp "$list" "$RECORD/list.$suite"; cp "$conf" "$RECORD/conf"
if [ -f "$RECORD/failures" ]; then
    left=$(cat "$RECORD/failures"); if [ "$left" -gt 0 ]; then
        echo $((left - 1)) > "$RECORD/failures"; echo "E: could not connect"; exit 100
    fi
fi
[ -f "$RECORD/suite.$suite" ] || { echo "E: The repository 'x $suite Release' does not have a Release file."; exit 100; }
[ "$verb" = update ] || cp "$RECORD/suite.$suite" "nats-server_$suite.deb"
"""

DPKG_DEB = """\
mkdir -p "$3/usr/sbin"
printf '#!/bin/sh\\necho "nats-server: v%s"\\n' "$(cat "$2")" > "$3/usr/sbin/nats-server"
chmod 755 "$3/usr/sbin/nats-server"
"""


@dataclass
class Machine:
    """A pretended machine: what is on PATH, which sources it has, which suites its mirror carries."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("bin", "record", "apt/parts", "tmp"):
            (self.root / name).mkdir(parents=True)
        for tool in TOOLS.split():
            where = shutil.which(tool)
            assert where is not None, tool
            (self.root / "bin" / tool).symlink_to(where)
        self.os_release("ID=debian\nVERSION_CODENAME=bookworm\n")

    def command(self, name: str, body: str, folder: str = "bin") -> Path:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def server(self, version: str, folder: str = "bin") -> Path:
        return self.command("nats-server", f"echo 'nats-server: v{version}'", folder)

    def os_release(self, text: str) -> None:
        (self.root / "os-release").write_text(text)

    def debian(self, suites: dict[str, str], sources: dict[str, str]) -> None:
        """Give it apt; ``suites``: suite -> version of nats-server; ``sources``: file name -> text."""
        self.command("apt-get", APT_GET)
        self.command("dpkg-deb", DPKG_DEB)
        apt = self.root / "apt"
        self.command("apt-config", f"echo \"apt_list='{apt}/sources.list' apt_parts='{apt}/parts/'\"")
        for suite, version in suites.items():
            (self.root / "record" / f"suite.{suite}").write_text(version)
        for name, text in sources.items():
            ((apt if name == "sources.list" else apt / "parts") / name).write_text(text)

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": str(self.root / "bin"),
            "RECORD": str(self.root / "record"),
            "TMPDIR": str(self.root / "tmp"),
            "INSTALL_NATS_PAUSE": "0",
            "INSTALL_NATS_OS_RELEASE": str(self.root / "os-release"),
        }
        return subprocess.run(
            [str(INSTALLER), *(arguments or (str(self.dest),))],
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    @property
    def dest(self) -> Path:
        return self.root / "dest"

    @property
    def calls(self) -> list[str]:
        record = self.root / "record" / "calls"
        return record.read_text().splitlines() if record.exists() else []

    def list_of(self, suite: str) -> str:
        return (self.root / "record" / f"list.{suite}").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def assert_found(done: subprocess.CompletedProcess[str], path: Path, version: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}\n"
    assert version in subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True).stdout


def test_a_new_nats_server_on_path_is_used_without_network(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1"}, {"debian.sources": DEB822})
    on_path = machine.server("2.12.0")
    assert_found(machine.run(), on_path, "2.12.0")
    assert machine.calls == []
    assert not machine.dest.exists()


def test_the_package_of_the_first_suite_is_unpacked_into_the_folder(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1", "trixie": "2.10.27"}, {"debian.sources": DEB822})
    assert_found(machine.run(), machine.dest / "nats-server", "2.15.1")
    assert machine.calls == ["update forky", "download forky"]
    assert [p.name for p in machine.dest.iterdir()] == ["nats-server"]
    assert list((machine.root / "tmp").iterdir()) == [], "temporary files are left"


def test_a_second_run_uses_no_network(machine: Machine) -> None:
    machine.debian({"trixie": "2.10.27"}, {"debian.sources": DEB822})
    machine.run()
    asked = len(machine.calls)
    assert_found(machine.run(), machine.dest / "nats-server", "2.10.27")
    assert len(machine.calls) == asked > 0


def test_upgrade_replaces_an_older_one(machine: Machine) -> None:
    machine.debian({"trixie": "2.10.27"}, {"debian.sources": DEB822})
    machine.run()
    (machine.root / "record" / "suite.forky").write_text("2.15.1")
    assert_found(machine.run("--upgrade", str(machine.dest)), machine.dest / "nats-server", "2.15.1")


def test_the_temporary_source_is_the_machines_own_entry_with_another_suite(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1"}, {"aaa.sources": THIRD_PARTY, "debian.sources": DEB822})
    machine.run()
    assert machine.list_of("forky").splitlines() == [
        "Types: deb",
        "Suites: forky",
        "Components: main",
        "URIs: http://mirror.example/debian",
        "Signed-By: /keys/machine.gpg",
    ]
    assert machine.calls == ["update forky", "download forky"], "an entry of another suite was asked"


def test_an_embedded_key_and_wrapped_fields_are_kept(machine: Machine) -> None:
    wrapped = (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites:\n bookworm\n bookworm-updates\n"
        "Components: main\nSigned-By:\n -----BEGIN KEY-----\n .\n abcdef\n -----END KEY-----\n"
    )
    machine.debian({"forky": "2.15.1"}, {"debian.sources": wrapped})
    assert_found(machine.run(), machine.dest / "nats-server", "2.15.1")
    assert machine.list_of("forky").splitlines() == [
        "Types: deb",
        "Suites: forky",
        "Components: main",
        "URIs: http://mirror.example/debian",
        "Signed-By:",
        " -----BEGIN KEY-----",
        " .",
        " abcdef",
        " -----END KEY-----",
    ]


@pytest.mark.parametrize(
    ("line", "derived"),
    [
        (
            "deb [arch=amd64 signed-by=/keys/machine.gpg] http://mirror.example/debian bookworm main contrib # x",
            "deb [arch=amd64 signed-by=/keys/machine.gpg] http://mirror.example/debian forky main",
        ),
        ("deb http://mirror.example/debian stable main", "deb http://mirror.example/debian forky main"),
    ],
)
def test_a_one_line_source_works_too(machine: Machine, line: str, derived: str) -> None:
    ours = f"# deb http://commented.example/debian bookworm main\n{line}\n"
    ours += "deb http://mirror.example/security bookworm-security main\n"
    machine.debian({"forky": "2.15.1"}, {"sources.list": ours})
    assert_found(machine.run(), machine.dest / "nats-server", "2.15.1")
    assert machine.list_of("forky") == derived + "\n"


def test_apt_writes_only_into_a_temporary_folder(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1"}, {"debian.sources": DEB822})
    machine.run()
    conf = (machine.root / "record" / "conf").read_text()
    temporary = str(machine.root / "tmp" / "install-nats.")
    for key in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::SourceList"):
        assert f'{key} "{temporary}' in conf
    assert 'Dir::Etc::SourceParts "/dev/null";' in conf
    assert "#clear APT::Update::Post-Invoke;" in conf


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failing_network_step_is_tried_twice_more(machine: Machine, failures: int) -> None:
    machine.debian({"forky": "2.15.1"}, {"debian.sources": DEB822})
    (machine.root / "record" / "failures").write_text(str(failures))
    assert_found(machine.run(), machine.dest / "nats-server", "2.15.1")
    assert machine.calls == ["update forky"] * (failures + 1) + ["download forky"]


def test_a_suite_the_mirror_lacks_is_asked_once_and_the_next_is_tried(machine: Machine) -> None:
    machine.debian({"trixie": "2.10.27"}, {"debian.sources": DEB822})
    assert_found(machine.run(), machine.dest / "nats-server", "2.10.27")
    assert machine.calls == ["update forky", "update sid", "update trixie", "download trixie"]


def test_an_older_nats_server_on_path_is_used_only_if_no_newer_one_is_available(machine: Machine) -> None:
    on_path = machine.server("2.11.4")
    machine.debian({"trixie": "2.10.27"}, {"debian.sources": DEB822})
    assert_found(machine.run(), on_path, "2.11.4")
    (machine.root / "record" / "suite.forky").write_text("2.15.1")
    assert_found(machine.run(), machine.dest / "nats-server", "2.15.1")


def test_a_package_that_is_too_old_or_does_not_run_is_not_used(machine: Machine) -> None:
    machine.debian({"forky": "2.9.10", "sid": "dev", "trixie": "2.10.27"}, {"debian.sources": DEB822})
    done = machine.run()
    assert_found(done, machine.dest / "nats-server", "2.10.27")
    assert "2.9.10: not usable" in done.stderr


def test_homebrew_is_used_where_there_is_no_apt(machine: Machine) -> None:
    brewed = machine.root / "brewed"
    machine.command(
        "brew",
        f'case $1 in install) echo "install $2" >> "$RECORD/calls"; mkdir -p {brewed}/bin;'
        f" printf '#!/bin/sh\\necho nats-server: v2.14.0\\n' > {brewed}/bin/nats-server;"
        f" chmod 755 {brewed}/bin/nats-server;; --prefix) echo {brewed};; esac",
    )
    assert_found(machine.run(), brewed / "bin" / "nats-server", "2.14.0")
    assert machine.calls == ["install nats-server"]


def test_without_a_nats_server_the_instruction_is_exact_and_the_exit_code_unavailable(machine: Machine) -> None:
    machine.server("2.9.10")
    done = machine.run()
    assert done.returncode == 5
    assert done.stdout == ""
    assert "2.9.10" in done.stderr
    assert f"{machine.dest}/nats-server" in done.stderr
    assert "brew install nats-server" in done.stderr
    assert "crew-journal up --nats URL" in done.stderr


def test_a_mirror_that_is_down_ends_in_the_instruction(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1"}, {"debian.sources": DEB822})
    (machine.root / "record" / "failures").write_text("99")
    done = machine.run()
    assert (done.returncode, done.stdout) == (5, "")
    assert machine.calls == [f"update {suite}" for suite in ("forky", "sid", "trixie") for _ in range(3)]
    assert list((machine.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("arguments", [("--nonsense",), ("one", "two")])
def test_a_wrong_call_says_how_to_call_it(machine: Machine, arguments: tuple[str, ...]) -> None:
    done = machine.run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")


def test_the_folder_is_found_from_anywhere_and_may_hold_blanks(machine: Machine, tmp_path: Path) -> None:
    cached = machine.server("2.15.1", "a folder")
    assert_found(machine.run(str(tmp_path / "a folder")), cached, "2.15.1")
    assert_found(machine.run("a folder", cwd=tmp_path), cached, "2.15.1")


def test_a_folder_that_cannot_be_written_is_said(machine: Machine) -> None:
    machine.debian({"forky": "2.15.1"}, {"debian.sources": DEB822})
    machine.dest.write_text("a file is in the way")
    done = machine.run()
    assert (done.returncode, done.stdout) == (5, "")
    assert f"cannot write to {machine.dest}" in done.stderr


def test_on_ubuntu_its_own_suites_and_component_are_asked(machine: Machine) -> None:
    machine.os_release("ID=ubuntu\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n")
    ours = "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble noble-updates\nComponents: main universe\n"
    machine.debian({"questing": "2.12.0"}, {"ubuntu.sources": ours})
    assert_found(machine.run(), machine.dest / "nats-server", "2.12.0")
    assert machine.calls[-1] == "download questing"
    assert "Components: universe\nURIs: http://mirror.example/ubuntu\n" in machine.list_of("questing")


@pytest.mark.nightly
def test_the_real_mirror_of_this_machine_gives_one_that_runs(tmp_path: Path) -> None:
    done = subprocess.run([str(INSTALLER), str(tmp_path)], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    said = subprocess.run([done.stdout.strip(), "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("nats-server: v2.")

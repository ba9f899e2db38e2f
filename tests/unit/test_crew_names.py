"""Which crew a folder belongs to: remotes of different hosts and paths are different crews."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.ids import is_id
from crew_journal.services.client.project import crew_of_remote, project_of


def _repository(folder: Path, url: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    return folder


@pytest.mark.parametrize(
    ("url", "crew"),
    [
        ("git@github.com:acme/shop.git", "github-com__acme__shop"),
        ("https://github.com/acme/shop", "github-com__acme__shop"),
        ("https://ann:secret@GitHub.com:443/acme/shop.git/", "github-com__acme__shop"),
        ("ssh://git@github.com:22/acme/shop.git", "github-com__acme__shop"),
        ("https://evil.example/acme/shop", "evil-example__acme__shop"),
        ("https://gitlab.com/evil/acme/shop", "gitlab-com__evil__acme__shop"),
        ("https://git.acme.com/x/my_shop", "git-acme-com__x__my_shop"),
        ("https://git-acme.com/x/my_shop", "git--acme-com__x__my_shop"),
    ],
)
def test_the_crew_of_a_remote_has_its_host_and_its_whole_path(tmp_path: Path, url: str, crew: str) -> None:
    assert crew_of_remote(url) == crew
    assert project_of(_repository(tmp_path / "x", url), "codex").crew == crew


ALIKE = [
    "https://github.com/acme/shop",
    "https://github.com/acme/sh.op",
    "https://github.com/acme/sh-op",
    "https://github.com/acme__shop",
    "https://github.com/acme_/shop",
    "https://github.com/acme/_shop",
    "https://evil.example/github.com/acme/shop",
    "https://evil.example/acme/shop",
    "https://gitlab.com/acme/shop",
    "https://local/acme/shop",
    "https://github-com/acme/shop",
    "/acme/shop",
    "/srv/git/acme/shop",
    "../acme/shop",
    "file:///tmp/evil/acme/shop",
    "https://github.com/acme/" + "s" * 90,
    "https://github.com/acme/" + "s" * 91,
]


def test_remotes_that_look_alike_are_different_crews() -> None:
    crews = [crew_of_remote(url) for url in ALIKE]
    for one, other in itertools.combinations(range(len(ALIKE)), 2):
        assert crews[one] != crews[other], (ALIKE[one], ALIKE[other])
    assert all(crew is not None and is_id(crew) for crew in crews)


_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
_REMOTE = st.tuples(
    st.lists(_LABEL, min_size=1, max_size=3).map(".".join),
    st.lists(
        st.from_regex(r"[a-z_.-]{1,5}", fullmatch=True).filter(lambda part: not part.endswith(".git")), min_size=1
    ),
)


@given(_REMOTE, _REMOTE)
def test_no_two_remotes_have_the_same_crew_and_each_crew_is_an_id(
    one: tuple[str, list[str]], other: tuple[str, list[str]]
) -> None:
    crews = [crew_of_remote(f"https://{host}/{'/'.join(path)}") for host, path in (one, other)]
    assert (crews[0] == crews[1]) == (one == other)
    assert all(crew is not None and is_id(crew) for crew in crews)


def test_no_folder_without_a_remote_has_the_crew_of_a_remote(tmp_path: Path) -> None:
    pretending = tmp_path / "github-com__acme__shop"
    (pretending / ".git").mkdir(parents=True)
    assert project_of(pretending, "codex").crew == "github-com_acme_shop"


def test_a_folder_that_claims_to_be_a_worktree_of_another_repository_is_not(tmp_path: Path) -> None:
    main = _repository(tmp_path / "shop", "git@github.com:acme/shop.git")
    (main / ".git" / "worktrees" / "fix").mkdir(parents=True)
    (main / ".git" / "worktrees" / "fix" / "gitdir").write_text(f"{tmp_path}/fix/.git\n")
    for name in ("fix", "archive"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".git").write_text(f"gitdir: {main}/.git/worktrees/fix\n")
    assert project_of(tmp_path / "fix", "codex").crew == "github-com__acme__shop"
    assert project_of(tmp_path / "archive", "codex").crew == "archive"


def test_a_configuration_of_blank_lines_is_read_at_once(tmp_path: Path) -> None:
    folder = _repository(tmp_path / "shop", "x")
    (folder / ".git" / "config").write_text('[remote "origin"]\n' + "\n" * 900_000)
    assert project_of(folder, "codex").crew == "shop"

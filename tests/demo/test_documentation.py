"""The documentation that is made from the code is current, and every beat job has its runbook page."""

import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from config.schedule import BEAT_SCHEDULE
from demo.state_diagrams import edges_of, machines, pages

ROOT = Path(__file__).resolve().parents[2]


def test_drawings_and_rules_are_current() -> None:
    call_command("draw_states", check=True)


def test_the_check_sees_a_stale_page(settings, tmp_path) -> None:
    (tmp_path / "docs" / "states").mkdir(parents=True)
    (tmp_path / "docs" / "states" / "order.md").write_text("old")
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match=r"order\.md"):
        call_command("draw_states", check=True)


def test_every_machine_is_drawn_with_every_edge() -> None:
    drawn = pages()
    for model, field in machines():
        page = next(text for text in drawn.values() if text.startswith(f"# {model._meta.label}.{field.name}\n"))
        for commands in edges_of(model, field).values():
            assert all(command in page for command in commands)


@pytest.mark.parametrize("task", sorted(BEAT_SCHEDULE))
def test_every_beat_job_has_a_page(task: str) -> None:
    page = ROOT / "docs" / "runbook" / f"{task.rpartition('.')[2]}.md"
    text = page.read_text("utf-8")
    assert f"`{task}`" in text
    assert all(f"## {part}" in text for part in ("You notice", "Look", "Do"))


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in target and not target.startswith("docs/images/"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} → {target}"

"""Every class of the product has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("schemas", "consumers", "services")


def test_class_names_of_the_product_are_unique() -> None:
    places = defaultdict(list)
    for path in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}

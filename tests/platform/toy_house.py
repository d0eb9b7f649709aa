"""A house of toy processes under the real supervisor: `toy_house.py BIN VAR PARTS` (PARTS is JSON)."""

import json
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from house import keys, layout, plan, supervisor


def part(wish: dict) -> plan.Part:
    sign = Path(wish["sign"]) if "sign" in wish else None
    return plan.Part(
        name=wish["name"],
        argv=lambda: [sys.executable, "-c", wish["program"]],
        is_ready=lambda: sign.exists() if sign else not wish.get("task"),
        needs=tuple(wish.get("needs", ())),
        task=wish.get("task", False),
        patience=wish.get("patience", 5.0),
    )


def main() -> int:
    var = Path(sys.argv[2])
    house_keys = keys.keys_of(var)
    house = supervisor.Supervisor(
        var=var,
        keys=house_keys,
        numbers=dict.fromkeys(plan.PORT_NAMES, 1),
        parts=[part(wish) for wish in json.loads(sys.argv[3])],
        say=lambda line: print(line, flush=True),
    )
    house.listen()
    try:
        if house.start():
            print("READY", flush=True)
            house.watch()
        return 0
    except layout.Trouble as trouble:
        print(trouble, flush=True)
        return 1
    finally:
        house.stop()


sys.exit(main())

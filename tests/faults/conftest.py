"""The programs in bin/ import their modules from bin/; so do their tests."""

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "bin"))

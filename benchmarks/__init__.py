"""Side-by-side ratios, measured in one run. `bin/bench --help`."""

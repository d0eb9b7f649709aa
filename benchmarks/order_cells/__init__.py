"""Parts of the orders benchmark: the rows, the plain SQL, the cells."""

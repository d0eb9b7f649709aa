"""Parts of the coupons benchmark: the rows, the plain SQL, the cells."""

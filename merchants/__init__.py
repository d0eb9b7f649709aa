"""Who the product works for and who may see what: merchants, staff, API clients."""

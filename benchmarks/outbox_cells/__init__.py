"""Parts of the outbox benchmark: our relay and its readers, Celery's and Procrastinate's no-op."""

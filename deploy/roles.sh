#!/bin/sh
# Run once by the postgres image on an empty data directory: the role that owns the tables and the role that works.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    -v owner_password="$QUITS_OWNER_PASSWORD" -v app_password="$QUITS_APP_PASSWORD" <<'SQL'
CREATE ROLE quits_owner LOGIN CREATEDB NOSUPERUSER PASSWORD :'owner_password';
CREATE ROLE quits_app LOGIN NOCREATEDB NOSUPERUSER PASSWORD :'app_password';
\connect template1
ALTER DEFAULT PRIVILEGES FOR ROLE quits_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO quits_app;
ALTER DEFAULT PRIVILEGES FOR ROLE quits_owner GRANT USAGE, SELECT ON SEQUENCES TO quits_app;
\connect postgres
CREATE DATABASE quits OWNER quits_owner TEMPLATE template1;
SQL

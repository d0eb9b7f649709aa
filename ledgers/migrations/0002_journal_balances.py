"""An entry of the journal has at least two lines and they sum to zero; the database looks at commit."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION journal_entry_balances() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    looked_at uuid;
    lines bigint;
    total numeric;
BEGIN
    IF TG_TABLE_NAME = 'journal_entry' THEN
        looked_at := NEW.id;
    ELSE
        looked_at := NEW.entry_id;
    END IF;
    SELECT count(*), coalesce(sum(amount_fen), 0) INTO lines, total FROM journal_line WHERE entry_id = looked_at;
    IF lines < 2 OR total <> 0 THEN
        RAISE EXCEPTION 'journal entry % has % lines that sum to %', looked_at, lines, total
            USING ERRCODE = 'check_violation', CONSTRAINT = 'journal_entry_balances';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER journal_entry_balances AFTER INSERT ON journal_entry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal_entry_balances();
CREATE CONSTRAINT TRIGGER journal_line_balances AFTER INSERT ON journal_line
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal_entry_balances();
"""

BACKWARD = """
DROP TRIGGER journal_line_balances ON journal_line;
DROP TRIGGER journal_entry_balances ON journal_entry;
DROP FUNCTION journal_entry_balances();
"""


class Migration(migrations.Migration):
    dependencies = [("ledgers", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]

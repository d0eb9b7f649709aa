"""What a next release does to a table that is hot: a column, a check and an index, none of which holds traffic up."""

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("coupons", "0001_initial")]
    operations = [
        migrations.RunSQL("ALTER TABLE user_coupon ADD COLUMN next_note text NOT NULL DEFAULT ''"),
        migrations.RunSQL(
            "ALTER TABLE user_coupon ADD CONSTRAINT next_note_is_short CHECK (length(next_note) < 100) NOT VALID"
        ),
        migrations.RunSQL("ALTER TABLE user_coupon VALIDATE CONSTRAINT next_note_is_short"),
        migrations.RunSQL("CREATE INDEX CONCURRENTLY next_by_note ON user_coupon (next_note)"),
    ]

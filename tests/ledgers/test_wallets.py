"""Wallets: topped up, charged, credited; never overdrawn, whoever writes."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, connection, transaction

from kernel import errors
from ledgers import checks
from ledgers.commands.charge_wallet import WalletChargeClosed, charge_wallet
from ledgers.commands.close_wallet_charge import close_wallet_charge
from ledgers.commands.credit_wallet import WalletRefundTooLarge, WalletUnknown, credit_wallet
from ledgers.commands.move_wallet import NotEnoughBalance, WalletKeyReused
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.models import JournalLine, WalletAccount, WalletCharge, WalletEntry


def top_up(merchant, now, amount_fen=30000, **values):
    asked = {"user_id": "lan", "reference": "bank-1", **values}
    return top_up_wallet(merchant_id=merchant.pk, amount_fen=amount_fen, now=now, **asked)


def charge(merchant, now, amount_fen=26000, **values):
    asked = {"user_id": "lan", "number": "Q1P1", **values}
    return charge_wallet(merchant_id=merchant.pk, amount_fen=amount_fen, now=now, **asked)


def credit(merchant, now, amount_fen=17167, **values):
    asked = {"refund_no": "AS1-0", "charge_no": "Q1P1", "user_id": "", **values}
    return credit_wallet(merchant_id=merchant.pk, amount_fen=amount_fen, now=now, **asked)


def everything():
    return [list(kind.objects.order_by("pk").values()) for kind in (WalletAccount, WalletEntry, WalletCharge)]


def entries():
    return list(WalletEntry.objects.order_by("id").values_list("kind", "delta_fen", "balance_after_fen"))


@pytest.fixture
def lan(transactional_db, merchant, now):
    top_up(merchant, now)
    return merchant


def test_top_up_is_booked_once(lan, now):
    assert top_up(lan, now).replayed
    assert entries() == [("top_up", 30000, 30000)]
    assert set(JournalLine.objects.values_list("account", "amount_fen")) == {
        ("wallet_funding", 30000),
        ("channel_clearing:balance", -30000),
    }


def test_charge_and_refunds_back_to_the_full_sum(lan, now):
    assert not charge(lan, now).replayed
    assert charge(lan, now).replayed
    assert credit(lan, now).balance_fen == 4000 + 17167
    assert credit(lan, now).replayed
    credit(lan, now, 8833, refund_no="AS2-0")
    assert WalletAccount.objects.get().balance_fen == 30000
    assert WalletCharge.objects.get().refunded_fen == 26000
    assert checks.wallets_that_differ() == []


def test_a_refund_of_another_channel_makes_the_wallet(transactional_db, merchant, now):
    credit(merchant, now, charge_no="Q9P1", user_id="yun")
    assert (WalletAccount.objects.get().user_id, entries()) == ("yun", [("credit", 17167, 17167)])


@pytest.mark.parametrize(
    ("act", "refusal"),
    [
        (lambda m, now: charge(m, now, 30001), NotEnoughBalance),
        (lambda m, now: charge(m, now, user_id="nobody"), NotEnoughBalance),
        (lambda m, now: charge(m, now, 0), errors.InvalidInput),
        (lambda m, now: charge(m, now, 1, number="paid"), WalletKeyReused),
        (lambda m, now: charge(m, now, 100, number="paid", user_id="nobody"), WalletKeyReused),
        (lambda m, now: charge(m, now, number="closed"), WalletChargeClosed),
        (lambda m, now: top_up(m, now, 30001), WalletKeyReused),
        (lambda m, now: top_up(m, now, user_id="yun"), WalletKeyReused),
        (lambda m, now: top_up(m, now, -1, reference="bank-2"), errors.InvalidInput),
        (lambda m, now: top_up(m, now, 10**10 + 1, reference="bank-2"), errors.InvalidInput),
        (lambda m, now: credit(m, now, 101, charge_no="paid"), WalletRefundTooLarge),
        (lambda m, now: credit(m, now, 1, charge_no="paid", user_id="yun"), WalletKeyReused),
        (lambda m, now: credit(m, now, 1, charge_no="unheard"), WalletUnknown),
        (lambda m, now: credit(m, now, 0), errors.InvalidInput),
    ],
)
def test_refusals_write_nothing(lan, now, act, refusal):
    charge(lan, now, 100, number="paid")
    close_wallet_charge(merchant_id=lan.pk, number="closed", now=now)
    before = everything()
    with pytest.raises(refusal):
        act(lan, now)
    assert everything() == before


def test_a_number_is_charged_or_closed_never_both(lan, now):
    assert close_wallet_charge(merchant_id=lan.pk, number="Q1P1", now=now).outcome == "CLOSED"
    with pytest.raises(WalletChargeClosed):
        charge(lan, now)
    charge(lan, now, number="Q2P1")
    assert close_wallet_charge(merchant_id=lan.pk, number="Q2P1", now=now).outcome == "PAID"


def at_once(*jobs):
    results, barrier = [], threading.Barrier(len(jobs))

    def run(job):
        barrier.wait(10)
        try:
            results.append(job())
        except errors.Refusal as refusal:
            results.append(type(refusal))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_race_never_overdraws(lan, now):
    jobs = [lambda n=n: charge(lan, now, 10000, number=f"Q{n}P1") for n in range(5)]
    results = at_once(*jobs)
    assert results.count(NotEnoughBalance) == 2
    assert WalletAccount.objects.get().balance_fen == 0
    assert checks.wallets_that_differ() == []


def test_race_of_charging_and_closing_has_one_winner(lan, now):
    for number in range(4):
        at_once(
            lambda n=number: charge(lan, now, 100, number=f"Q{n}P1"),
            lambda n=number: close_wallet_charge(merchant_id=lan.pk, number=f"Q{n}P1", now=now),
        )
    paid = WalletCharge.objects.filter(outcome="PAID").count()
    assert WalletAccount.objects.get().balance_fen == 30000 - 100 * paid
    assert WalletCharge.objects.count() == 4


@pytest.mark.parametrize(
    ("sql", "constraint"),
    [
        ("UPDATE wallet_account SET balance_fen = -1", "wallet_is_not_overdrawn"),
        ("UPDATE wallet_charge SET refunded_fen = 26001", "wallet_refunds_within_charge"),
        ("UPDATE wallet_charge SET amount_fen = 99999", "Cannot update"),
        ("UPDATE wallet_entry SET delta_fen = 1", "Cannot update"),
        ("DELETE FROM wallet_entry", "Cannot delete"),
        (
            "INSERT INTO wallet_charge (id, merchant_id, number, outcome, amount_fen, refunded_fen, created_at)"
            " SELECT gen_random_uuid(), merchant_id, number, 'CLOSED', 0, 0, now() FROM wallet_charge",
            "wallet_charge_is_decided_once",
        ),
        (
            "INSERT INTO wallet_entry (merchant_id, account_id, kind, delta_fen, balance_after_fen, reference,"
            " charge_no, note, entered_by, created_at) SELECT merchant_id, id, 'charge', 5, 5, 'x', '', '', '', now()"
            " FROM wallet_account",
            "wallet_entry_has_the_sign_of_its_kind",
        ),
        (
            "INSERT INTO wallet_entry (merchant_id, account_id, kind, delta_fen, balance_after_fen, reference,"
            " charge_no, note, entered_by, created_at) SELECT merchant_id, id, 'credit', 5, 5, 'x', '', '', '', now()"
            " FROM wallet_account",
            "wallet_credit_names_its_charge",
        ),
    ],
)
def test_the_database_keeps_the_promise(lan, now, sql, constraint):
    charge(lan, now)
    with (
        pytest.raises(DatabaseError, match=constraint),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)


def test_the_check_finds_a_balance_that_was_edited(lan, now):
    WalletAccount.objects.update(balance_fen=1)
    [row] = checks.wallets_that_differ()
    assert (row["balance_fen"], row["entries_balance_fen"]) == (1, 30000)


def test_the_check_finds_a_charge_without_its_payment(lan, now):
    charge(lan, datetime.now(UTC))
    assert checks.wallet_payments_that_differ() == [], "both sides have ten minutes"
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE wallet_entry DISABLE TRIGGER USER")
        cursor.execute("UPDATE wallet_entry SET created_at = now() - interval '1 hour'")
        cursor.execute("ALTER TABLE wallet_entry ENABLE TRIGGER USER")
    [row] = checks.wallet_payments_that_differ()
    assert (row["number"], row["paid_fen"], row["entries_paid_fen"]) == ("Q1P1", None, 26000)

-- Transactions of other sessions of this database, and prepared ones: what keeps dead rows from being removed.
-- Returns: pid, role, application, state, age in seconds (null: another login's, hidden from us), xmin it holds.
-- Needs: the function of 0010 (the owner sees all of Harness's sessions). Locks: nothing. Parameters: none.
SELECT pid, role, application, state, age_s, xmin FROM harness_transactions()

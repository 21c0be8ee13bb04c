DROP FUNCTION {outbox_month}(timestamptz);

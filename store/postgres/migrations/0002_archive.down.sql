DROP FUNCTION {outbox_archive_ahead}();
DROP TABLE {outbox_archive};

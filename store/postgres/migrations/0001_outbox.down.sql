DROP TABLE {outbox};
DROP FUNCTION {outbox_lane}(text, text);
DROP FUNCTION {outbox_event_id}();
DROP FUNCTION {outbox_wake}();
DROP TABLE {outbox_sleepers};
DROP TABLE {outbox_fingerprints};
DROP TABLE {outbox_rewinds};
DROP TABLE {outbox_lanes};
DROP TABLE {outbox_members};

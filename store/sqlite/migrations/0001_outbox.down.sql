DROP TABLE "outbox_fingerprints";
DROP TABLE "outbox_rewinds";
DROP TABLE "outbox_lanes";
DROP TABLE "outbox_members";
DROP TABLE "outbox";

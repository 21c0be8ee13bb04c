package sqlite

// Named gives a query written for the table "outbox" the name of another.
var Named = named

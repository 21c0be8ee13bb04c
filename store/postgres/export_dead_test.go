package postgres

// DeadSQL are the statements about dead letters, by name, for tests of their plans.
func (s *Store) DeadSQL() map[string]string {
	all := map[string]string{"unblock": s.queries.unblock, "skip head": s.queries.skipHead, "purge": s.queries.purgeDiscarded}
	for state, q := range s.queries.dead {
		all["list "+string(state)], all["count "+string(state)] = q.list, q.count
		all["requeue "+string(state)], all["discard "+string(state)] = q.requeue, q.discard
	}
	return all
}

// IndexedSQL is what comes before them in a transaction.
const IndexedSQL = indexedSQL

// HotPlansSQL are the settings that the hot statements run with.
const HotPlansSQL = hotPlansSQL

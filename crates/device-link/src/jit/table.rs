//! What has been linked, by content id: a hash table whose readers take no lock, allocate nothing and write nothing.
//!
//! Entries are never removed, so that a reader may keep a reference. The table is a row of arrays, each twice as large as the one before; an
//! entry lies in the first free one of a few neighbouring places of the first array that has one. An empty place where an entry could lie
//! therefore ends a search.

use std::sync::OnceLock;

use super::ContentId;

/// Places of the first array.
const FIRST: usize = 4096;
/// Arrays; the last one would hold more than memory does.
const LEVELS: usize = 24;
/// Neighbouring places that an entry may lie at.
const PLACES: usize = 8;

type Slot<V> = OnceLock<(ContentId, V)>;

/// See above.
pub(super) struct Table<V> {
    levels: [OnceLock<Box<[Slot<V>]>>; LEVELS],
}

impl<V> Default for Table<V> {
    fn default() -> Table<V> {
        Table { levels: std::array::from_fn(|_| OnceLock::new()) }
    }
}

impl<V> Table<V> {
    /// The entry of this id.
    pub(super) fn get(&self, id: &ContentId) -> Option<&V> {
        let hash = spread(id);
        for slots in self.levels.iter().map_while(OnceLock::get) {
            for slot in places(slots, hash) {
                match slot.get() {
                    None => return None,
                    Some((known, value)) if known == id => return Some(value),
                    Some(_) => {}
                }
            }
        }
        None
    }

    /// Adds an entry and returns what the id has from here on: this, or what another thread has added before. None where the table is full.
    pub(super) fn insert(&self, id: ContentId, value: V) -> Option<&V> {
        let hash = spread(&id);
        let mut entry = Some((id, value));
        for (level, slots) in self.levels.iter().enumerate() {
            let slots = slots.get_or_init(|| (0..FIRST << level).map(|_| OnceLock::new()).collect());
            for slot in places(slots, hash) {
                if let Some(new) = entry.take() {
                    entry = slot.set(new).err();
                }
                if let Some((known, value)) = slot.get()
                    && *known == id
                {
                    return Some(value);
                }
            }
        }
        None
    }
}

/// The places of an array where an entry may lie.
fn places<V>(slots: &[Slot<V>], hash: u64) -> impl Iterator<Item = &Slot<V>> {
    let start = hash as usize;
    let mask = slots.len() - 1;
    (0..PLACES).filter_map(move |place| slots.get(start.wrapping_add(place) & mask))
}

/// Ids are hashes, or something that a caller takes for one: counters must not meet at one place.
fn spread(id: &ContentId) -> u64 {
    let words = id.bytes().as_chunks::<8>().0.iter();
    words.fold(0, |hash, word| (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(number: u64) -> ContentId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        ContentId::from_bytes(bytes)
    }

    #[test]
    fn what_was_added_is_there_and_stays() {
        let table = Table::default();
        assert_eq!(table.get(&counter(0)), None);
        let many = 30_000;
        for number in 0..many {
            assert_eq!(table.insert(counter(number), number), Some(&number));
        }
        for number in 0..many {
            assert_eq!(table.get(&counter(number)), Some(&number));
            assert_eq!(table.get(&ContentId::of(&number.to_le_bytes())), None);
        }
        // The first one stays.
        assert_eq!(table.insert(counter(7), 8), Some(&7));
        let used = table.levels.iter().filter(|level| level.get().is_some()).count();
        assert!(used < 10, "{used} arrays for {many} entries");
    }

    #[test]
    fn threads_agree_on_who_was_first() {
        let table: Table<usize> = Table::default();
        let ids: Vec<ContentId> = (0..3000_u64).map(|n| ContentId::of(&n.to_le_bytes())).collect();
        let seen: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let work = |thread| ids.iter().map(|id| *table.insert(*id, thread).unwrap()).collect();
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (index, id) in ids.iter().enumerate() {
            let value = table.get(id).unwrap();
            assert!(seen.iter().all(|seen| seen[index] == *value), "{index}");
        }
    }
}

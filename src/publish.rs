//! One writer, many readers of the newest snapshot.
//!
//! Readers pay one atomic load while nothing has changed, and never free a
//! snapshot: the writer keeps every one it replaced until no reader holds it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache, Guard};

/// The writing end.
#[derive(Debug)]
pub struct Publisher<T> {
    newest: Arc<ArcSwap<T>>,
    retired: Vec<Arc<T>>,
}

/// A reading end; each thread has its own.
#[derive(Debug)]
pub struct Reader<T> {
    newest: Arc<ArcSwap<T>>,
    cache: Cache<Arc<ArcSwap<T>>, Arc<T>>,
}

/// A reading end for many who look seldom: holds no value between two looks,
/// so an idle one keeps nothing old alive.
#[derive(Debug)]
pub struct Glance<T> {
    newest: Arc<ArcSwap<T>>,
}

impl<T> Publisher<T> {
    /// Starts with `first` as the newest.
    pub fn new(first: Arc<T>) -> Publisher<T> {
        Publisher { newest: Arc::new(ArcSwap::new(first)), retired: Vec::new() }
    }

    /// Makes `next` the newest; readers see it with their next look.
    pub fn publish(&mut self, next: Arc<T>) {
        self.retired.push(self.newest.swap(next));
        self.sweep();
    }

    /// Frees what no reader holds any more; tells whether nothing old is left.
    pub fn sweep(&mut self) -> bool {
        self.retired.retain(|old| Arc::strong_count(old) > 1); // freed here, never by a query
        self.retired.is_empty()
    }

    /// A new reading end.
    pub fn reader(&self) -> Reader<T> {
        Reader { newest: Arc::clone(&self.newest), cache: Cache::new(Arc::clone(&self.newest)) }
    }
}

impl<T> Reader<T> {
    /// The newest value; one atomic load while nothing has changed.
    pub fn latest(&mut self) -> &T {
        self.cache.load()
    }

    /// A reading end that holds nothing between two looks.
    pub fn glance(&self) -> Glance<T> {
        Glance { newest: Arc::clone(&self.newest) }
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Reader<T> {
        Reader { newest: Arc::clone(&self.newest), cache: self.cache.clone() }
    }
}

impl<T> Glance<T> {
    /// The newest value, held until the guard goes; dearer than `latest`.
    pub fn newest(&self) -> Guard<Arc<T>> {
        self.newest.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_newest_and_never_frees_the_old() {
        let first = Arc::new(1);
        let old = Arc::downgrade(&first);
        let mut publisher = Publisher::new(first);
        let mut reader = publisher.reader();
        assert_eq!(*reader.latest(), 1);
        publisher.publish(Arc::new(2));
        assert_eq!(old.strong_count(), 2, "the reader's cache, the retired list");
        assert_eq!(*reader.latest(), 2);
        assert_eq!(old.strong_count(), 1, "the reader let go, the writer holds on");
        assert!(publisher.sweep());
        assert_eq!(old.strong_count(), 0, "freed by the writer");
    }

    #[test]
    fn a_glance_keeps_nothing_alive() {
        let first = Arc::new(1);
        let old = Arc::downgrade(&first);
        let mut publisher = Publisher::new(first);
        let glance = publisher.reader().glance();
        assert_eq!(**glance.newest(), 1);
        publisher.publish(Arc::new(2));
        assert_eq!(old.strong_count(), 0);
        assert_eq!(**glance.newest(), 2);
    }
}

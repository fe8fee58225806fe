//! One writer, many readers of the newest snapshot.
//!
//! Readers pay one atomic load while nothing has changed, and never free a
//! snapshot: the writer keeps every one it replaced until no reader holds it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

/// The writing end.
#[derive(Debug)]
pub struct Publisher<T> {
    newest: Arc<ArcSwap<T>>,
    retired: Vec<Arc<T>>,
}

/// A reading end; each thread has its own.
#[derive(Clone, Debug)]
pub struct Reader<T> {
    cache: Cache<Arc<ArcSwap<T>>, Arc<T>>,
}

impl<T> Publisher<T> {
    /// Starts with `first` as the newest.
    pub fn new(first: Arc<T>) -> Publisher<T> {
        Publisher { newest: Arc::new(ArcSwap::new(first)), retired: Vec::new() }
    }

    /// Makes `next` the newest; readers see it with their next look.
    pub fn publish(&mut self, next: Arc<T>) {
        self.retired.push(self.newest.swap(next));
        self.retired.retain(|old| Arc::strong_count(old) > 1); // freed here, never by a query
    }

    /// A new reading end.
    pub fn reader(&self) -> Reader<T> {
        Reader { cache: Cache::new(Arc::clone(&self.newest)) }
    }
}

impl<T> Reader<T> {
    /// The newest value; one atomic load while nothing has changed.
    pub fn latest(&mut self) -> &T {
        self.cache.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_newest_and_never_frees_the_old() {
        let mut publisher = Publisher::new(Arc::new(1));
        let mut reader = publisher.reader();
        assert_eq!(*reader.latest(), 1);
        let first = Arc::downgrade(&publisher.newest.load_full());
        publisher.publish(Arc::new(2));
        assert_eq!(*reader.latest(), 2);
        assert_eq!(first.strong_count(), 1, "the reader let go, the writer holds on");
        publisher.publish(Arc::new(3));
        assert_eq!(first.strong_count(), 0, "freed by the writer");
    }
}

//! Local copies of what the cluster holds, kept current by watching.
//!
//! A [`Reflector`] follows one kind of object into a store that others read through a [`Reader`]; only its task writes.
//! The objects may be of any type that reads from the API server's JSON: one with the few fields that are used takes a
//! fraction of the memory. While a list is fetched again, readers see the old one; then they see the new one, whole.
//! Who keeps still less of each object takes them one by one through a [`Sink`].
//! Who reads the bytes as they came, uses a [`RawReflector`].
//! A [`CacheSync`] says when all copies are there: until then nobody should act on what is missing from them.

mod cache_sync;
mod list_watch;
mod missing_kind;
mod noted;
pub mod object_meta;
mod store;
mod troubles;
mod typed;

#[cfg(test)]
mod tests;

pub use cache_sync::{CacheSync, SyncHandle, SyncTimeout};
pub use list_watch::{RawChange, RawReflector};
pub use missing_kind::MissingKind;
pub use store::{Change, Key, Reader};
pub use typed::{Reflector, ReflectorStatus, Sink, explain};

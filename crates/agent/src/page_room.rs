//! Room for a page of metrics, used again when the page before has been sent.
//!
//! A page is megabytes, made by whichever thread is free: with room of its own for each, the process would keep that of
//! every thread.

use std::sync::Arc;

use hyper::body::Bytes;
use parking_lot::Mutex;

#[derive(Debug, Clone, Default)]
pub(crate) struct PageRoom(Arc<Mutex<Vec<u8>>>);

impl PageRoom {
    /// Empty, and mostly as large as it has to be. Who asks while another page is on its way gets new room.
    pub fn lend(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }

    /// The page, whose room comes back when nobody needs it any more.
    pub fn hand_out(&self, page: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent {
            page,
            room: self.clone(),
        })
    }
}

struct Lent {
    page: Vec<u8>,
    room: PageRoom,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut page = std::mem::take(&mut self.page);
        // Of a crowd that has gone, nothing is kept.
        let is_fit = page.capacity() <= 2 * page.len();
        page.clear();
        let mut kept = self.room.0.lock();
        if is_fit && page.capacity() > kept.capacity() {
            *kept = page;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let room = PageRoom::default();
        let mut page = room.lend();
        page.extend_from_slice(&[7; 1000]);
        let first = room.hand_out(page);
        let clone = first.clone();
        assert_eq!(room.lend().capacity(), 0, "it is in use");
        drop(first);
        assert_eq!(room.lend().capacity(), 0, "it is still in use");
        assert_eq!(&clone[..], [7; 1000]);
        drop(clone);
        let again = room.lend();
        assert!(again.is_empty() && again.capacity() >= 1000);
    }

    #[test]
    fn too_much_room_is_not_kept() {
        let room = PageRoom::default();
        let mut page = Vec::with_capacity(1 << 20);
        page.push(1);
        drop(room.hand_out(page));
        assert_eq!(room.lend().capacity(), 0);
    }
}

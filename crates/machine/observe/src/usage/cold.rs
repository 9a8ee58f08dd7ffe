//! Pages that nobody has touched for long.

/// What is in use without the cold pages: everything with the page cache, less them. Scans lag behind, so there may be
/// more cold pages than pages.
pub fn hot_use(with_page_cache: u64, cold: u64) -> u64 {
    with_page_cache.saturating_sub(cold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_below_nothing() {
        assert_eq!(hot_use(100, 30), 70);
        assert_eq!(hot_use(100, 130), 0);
    }
}

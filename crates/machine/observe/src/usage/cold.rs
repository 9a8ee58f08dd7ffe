//! Cold pages: not accessed for long.

/// Usage with page cache, minus cold pages. Scans lag behind, so there may be more cold pages than pages.
pub fn hot_page_usage(with_page_cache: u64, cold: u64) -> u64 {
    with_page_cache.saturating_sub(cold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_below_nothing() {
        assert_eq!(hot_page_usage(100, 30), 70);
        assert_eq!(hot_page_usage(100, 130), 0);
    }
}

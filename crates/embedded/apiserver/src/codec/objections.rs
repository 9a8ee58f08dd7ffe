//! What a strict reader objects to: as many objections as the original tells of, each once.

/// So many the original's decoder collects.
const MOST: usize = 100;
/// What is put into words for them in all. A path may be as long as a body.
const MOST_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub struct Objections {
    said: Vec<String>,
    /// Put into words so far, repetitions too.
    bytes: usize,
}

impl Objections {
    /// Where there are enough of them, nothing is put into words any more.
    pub fn add(&mut self, words: impl FnOnce() -> String) {
        if self.said.len() >= MOST || self.bytes >= MOST_BYTES {
            return;
        }
        let words = words();
        self.bytes += words.len();
        if !self.said.contains(&words) {
            self.said.push(words);
        }
    }

    pub fn into_words(self) -> Vec<String> {
        self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_not_too_many() {
        let mut objections = Objections::default();
        for index in 0..1000 {
            objections.add(|| format!("{}", index / 3));
        }
        let said = objections.into_words();
        assert_eq!(said.len(), MOST);
        assert_eq!(said.last().map(String::as_str), Some("99"));
    }

    #[test]
    fn long_words_are_not_put_together_for_nothing() {
        let mut objections = Objections::default();
        let mut put_together = 0;
        for index in 0..1000 {
            objections.add(|| {
                put_together += 1;
                format!("{index}{}", "x".repeat(MOST_BYTES / 2))
            });
        }
        assert_eq!(put_together, 2);
    }
}

//! The names that an object has used, to tell which come again.

use std::collections::HashMap;

/// So few are compared one by one, which is quicker than anything else.
const FEW: usize = 16;

/// How often each name was met.
#[derive(Debug, Default)]
pub struct Names<'a> {
    few: Vec<(&'a str, usize)>,
    /// Hashed with a secret: clients choose the names.
    many: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// How often the name was met before.
    pub fn meet(&mut self, name: &'a str) -> usize {
        if self.many.is_empty() {
            if let Some((_, times)) = self.few.iter_mut().find(|(one, _)| *one == name) {
                *times += 1;
                return *times - 1;
            }
            if self.few.len() < FEW {
                self.few.push((name, 1));
                return 0;
            }
            self.many.extend(self.few.drain(..));
        }
        let times = self.many.entry(name).or_default();
        *times += 1;
        *times - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted() {
        for many in [1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            let all: Vec<String> = (0..many).map(|index| index.to_string()).collect();
            let mut names = Names::default();
            for round in 0..3 {
                for name in &all {
                    assert_eq!(names.meet(name), round, "{name} of {many}");
                }
            }
        }
    }
}

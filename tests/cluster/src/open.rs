//! Where the embedded server is known to differ from the recordings: `open.txt`, a line `AREA/CASE STEP` each. It is
//! there to shrink: a step that is not in it has to agree.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

#[derive(Debug, Default)]
pub struct Open(HashSet<(String, usize)>);

impl Open {
    pub fn load(file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("{} is malformed", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| {
                let (case, step) = line.split_once(' ').context("no step in a line")?;
                Ok((
                    case.to_owned(),
                    step.parse().context("not a step's number")?,
                ))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    pub fn has(&self, case: &str, step: usize) -> bool {
        self.0.contains(&(case.to_owned(), step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cases_and_steps() {
        let open = Open::parse("# why\ncrud/node 3\n\ncrd/cel 12\n").unwrap();
        assert!(open.has("crud/node", 3) && open.has("crd/cel", 12) && !open.has("crd/cel", 3));
        assert!(Open::parse("crud/node").is_err());
    }
}

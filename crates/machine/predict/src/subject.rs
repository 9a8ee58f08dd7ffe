//! Whose usage is remembered.

use std::fmt;
use std::str::FromStr;

use plimsoll_api::priority::PriorityClass;

/// What a model is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    Node,
    /// Everything on the node that is no pod.
    System,
    /// All pods of a class together.
    Class(PriorityClass),
    /// By UID.
    Pod(String),
}

/// The name that checkpoints go by.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("__node__"),
            Self::System => f.write_str("__node-sys__"),
            Self::Class(class) => write!(f, "__node-{}__", class.name()),
            Self::Pod(uid) => f.write_str(uid),
        }
    }
}

impl FromStr for Subject {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let item = name
            .strip_prefix("__node-")
            .and_then(|rest| rest.strip_suffix("__"));
        match (name, item) {
            ("__node__", _) => Ok(Self::Node),
            (_, Some("sys")) => Ok(Self::System),
            (_, Some(item)) => {
                let class = PriorityClass::ALL
                    .into_iter()
                    .find(|class| class.name() == item);
                class.map(Self::Class).ok_or(())
            }
            // A UID becomes a file's name.
            ("" | "." | "..", None) => Err(()),
            (uid, None) if uid.contains('/') => Err(()),
            (uid, None) => Ok(Self::Pod(uid.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let mut subjects = vec![Subject::Node, Subject::System, Subject::Pod("a-b-c".into())];
        subjects.extend(PriorityClass::ALL.map(Subject::Class));
        for subject in subjects {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
        assert_eq!(Subject::Class(PriorityClass::None).to_string(), "__node-__");
        for bad in ["__node-gold__", "", "..", "a/b"] {
            assert_eq!(bad.parse::<Subject>(), Err(()));
        }
    }
}

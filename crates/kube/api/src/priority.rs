//! How important a pod is, and what it may do to others: Koordinator's priority and QoS classes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pod's priority class. The node's spare room is lent to the lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String")]
pub enum PriorityClass {
    #[serde(rename = "koord-prod")]
    Prod,
    #[serde(rename = "koord-mid")]
    Mid,
    #[serde(rename = "koord-batch")]
    Batch,
    #[serde(rename = "koord-free")]
    Free,
    #[serde(rename = "")]
    None,
}

impl PriorityClass {
    pub const ALL: [Self; 5] = [Self::Prod, Self::Mid, Self::Batch, Self::Free, Self::None];

    pub fn name(self) -> &'static str {
        match self {
            Self::Prod => "koord-prod",
            Self::Mid => "koord-mid",
            Self::Batch => "koord-batch",
            Self::Free => "koord-free",
            Self::None => "",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class whose range a pod's priority is in.
    pub fn of_value(priority: Option<i32>) -> Self {
        match priority {
            Some(9000..=9999) => Self::Prod,
            Some(7000..=7999) => Self::Mid,
            Some(5000..=5999) => Self::Batch,
            Some(3000..=3999) => Self::Free,
            _ => Self::None,
        }
    }

    /// By a pod's label, else by its priority; `None` where neither says.
    pub fn of_pod(label: Option<&str>, priority: Option<i32>) -> Self {
        label
            .filter(|name| !name.is_empty())
            .and_then(Self::named)
            .unwrap_or_else(|| Self::of_value(priority))
    }

    /// What a pod without a class is treated as.
    #[must_use]
    pub fn or_by_qos(self, qos: QosClass) -> Self {
        match (self, qos) {
            (Self::None, QosClass::Be) => Self::Batch,
            (Self::None, QosClass::None) => Self::None,
            (Self::None, _) => Self::Prod,
            (class, _) => class,
        }
    }

    /// Pods without a class are treated as production.
    pub fn is_production(self) -> bool {
        matches!(self, Self::Prod | Self::None)
    }

    /// Lives on lent room, or on none at all.
    pub fn is_low(self) -> bool {
        matches!(self, Self::Batch | Self::Free)
    }
}

/// A class that nobody knows is none: one odd word in one report must not make it unreadable.
impl From<String> for PriorityClass {
    fn from(name: String) -> Self {
        Self::named(&name).unwrap_or(Self::None)
    }
}

impl fmt::Display for PriorityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a pod's processes are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String")]
pub enum QosClass {
    #[serde(rename = "LSE")]
    Lse,
    #[serde(rename = "LSR")]
    Lsr,
    #[serde(rename = "LS")]
    Ls,
    #[serde(rename = "BE")]
    Be,
    #[serde(rename = "SYSTEM")]
    System,
    #[serde(rename = "")]
    None,
}

/// Kubernetes' own classes, by which pods without one of ours are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KubeQos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Lse => "LSE",
            Self::Lsr => "LSR",
            Self::Ls => "LS",
            Self::Be => "BE",
            Self::System => "SYSTEM",
            Self::None => "",
        }
    }

    pub fn of_label(label: Option<&str>) -> Self {
        let known = [Self::Lse, Self::Lsr, Self::Ls, Self::Be, Self::System];
        known
            .into_iter()
            .find(|class| Some(class.name()) == label)
            .unwrap_or(Self::None)
    }

    #[must_use]
    pub fn or_by_kube(self, kube: KubeQos) -> Self {
        match (self, kube) {
            (Self::None, KubeQos::Guaranteed) => Self::Lsr,
            (Self::None, KubeQos::Burstable) => Self::Ls,
            (Self::None, KubeQos::BestEffort) => Self::Be,
            (class, _) => class,
        }
    }
}

impl From<String> for QosClass {
    fn from(name: String) -> Self {
        Self::of_label(Some(&name))
    }
}

impl KubeQos {
    /// As `status.qosClass` spells it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Guaranteed" => Some(Self::Guaranteed),
            "Burstable" => Some(Self::Burstable),
            "BestEffort" => Some(Self::BestEffort),
            _ => None,
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        label: Option<&str>,
        priority: Option<i32>,
        qos: Option<&str>,
        kube: KubeQos,
        expected: (&str, &str),
    ) {
        let qos = QosClass::of_label(qos).or_by_kube(kube);
        let class = PriorityClass::of_pod(label, priority).or_by_qos(qos);
        assert_eq!((class.name(), qos.name()), expected);
    }

    #[test]
    fn classes_are_read_as_they_are_written_and_unknown_ones_are_none() {
        let priority = |text: &str| serde_json::from_str::<PriorityClass>(text).unwrap();
        for class in PriorityClass::ALL {
            assert_eq!(priority(&serde_json::to_string(&class).unwrap()), class);
        }
        assert_eq!(priority("\"gold\""), PriorityClass::None);
        let qos = |text: &str| serde_json::from_str::<QosClass>(text).unwrap();
        assert_eq!(qos("\"LSE\""), QosClass::Lse);
        assert_eq!(
            qos(&serde_json::to_string(&QosClass::None).unwrap()),
            QosClass::None
        );
        assert_eq!(qos("\"gold\""), QosClass::None);
    }

    #[test]
    fn classes_of_pods() {
        use KubeQos::{BestEffort, Burstable, Guaranteed};
        check(None, None, None, Guaranteed, ("koord-prod", "LSR"));
        check(None, None, None, Burstable, ("koord-prod", "LS"));
        check(None, Some(0), None, BestEffort, ("koord-batch", "BE"));
        check(
            None,
            Some(7999),
            Some("BE"),
            BestEffort,
            ("koord-mid", "BE"),
        );
        check(
            Some("koord-free"),
            Some(9500),
            None,
            Burstable,
            ("koord-free", "LS"),
        );
        check(
            Some("gold"),
            Some(5000),
            Some("gold"),
            Burstable,
            ("koord-batch", "LS"),
        );
        check(
            None,
            Some(8000),
            Some("SYSTEM"),
            BestEffort,
            ("koord-prod", "SYSTEM"),
        );
    }
}

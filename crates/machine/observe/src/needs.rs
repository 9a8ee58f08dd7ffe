//! Which consumer needs which values how often, and the resulting reading plan.
//!
//! Reading everything each second costs more than all other work of the agent together, and most of it is used every ten
//! seconds or never. So each consumer states a [`Need`]; [`ReadPlan`] is what the sampler does, as data; `/debug/plan`
//! shows it.

use std::fmt::Write;
use std::time::Duration;

/// What is read of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Every group that is switched on.
    All,
    /// CPU time, throttling and the lists of pages; of the root: what the machine uses.
    Usage,
    /// Pressure (PSI).
    Pressure,
    /// The limits.
    Limits,
}

/// Of which cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Every,
    /// Those that a consumer has marked in the store, and the root.
    Marked,
}

/// The need of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub consumer: &'static str,
    pub what: What,
    pub which: Which,
    pub every: Duration,
}

/// What the sampler reads, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    needs: Vec<Need>,
    pub all: Duration,
    pub limits: Duration,
    /// `None`: nobody needs it more often than everything is read.
    pub usage: Option<Duration>,
    pub pressure: Option<Duration>,
    /// For who asks for a page, what is older is read again. `None`: pages show what was read last.
    pub page_age: Option<Duration>,
}

/// Where nobody needs everything.
const SELDOM: Duration = Duration::from_secs(10);

impl ReadPlan {
    /// `steady`: readings of everything come at their interval, and are not put off where nothing happens.
    pub fn new(needs: Vec<Need>, steady: bool, page_age: Option<Duration>) -> Self {
        let shortest = |what| {
            let of_it = needs.iter().filter(|need| need.what == what);
            of_it.map(|need| need.every).min()
        };
        let all = shortest(What::All).unwrap_or(SELDOM);
        // A reading of everything is one of each part.
        let more_often = |every: &Duration| *every < all || !steady;
        Self {
            all,
            limits: shortest(What::Limits).unwrap_or(all),
            usage: shortest(What::Usage).filter(more_often),
            pressure: shortest(What::Pressure).filter(more_often),
            // What is read that often anyway is never older.
            page_age: page_age.filter(|age| *age < all || !steady),
            needs,
        }
    }

    /// The shortest of all intervals: readings are put on its beats, so that they are made together.
    pub fn shortest(&self) -> Duration {
        self.usage.map_or(self.all, |usage| usage.min(self.all))
    }

    /// The plan as text, with the consumers.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, every: Option<Duration>| {
            let every = every.map_or("with all".to_owned(), |every| format!("every {every:?}"));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:10} {every}");
        };
        line("all", Some(self.all));
        line("limits", Some(self.limits));
        line("usage", self.usage);
        line("pressure", self.pressure);
        match self.page_age {
            Some(age) => {
                let _ = writeln!(text, "pages      read what is older than {age:?}");
            }
            None => text.push_str("pages      read nothing\n"),
        }
        text.push('\n');
        for need in &self.needs {
            let (what, which) = (need.what, need.which);
            let _ = writeln!(
                text,
                "{} needs {what:?} of {which:?} every {:?}",
                need.consumer, need.every
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn need(consumer: &'static str, what: What, every: u64) -> Need {
        let which = match what {
            What::All | What::Limits => Which::Every,
            What::Usage | What::Pressure => Which::Marked,
        };
        Need {
            consumer,
            what,
            which,
            every: seconds(every),
        }
    }

    #[test]
    fn what_is_read_anyway_is_not_read_twice() {
        let needs = |all| {
            vec![
                need("pages", What::All, all),
                need("history", What::Usage, 1),
                need("history", What::Pressure, 10),
            ]
        };
        for (all, steady, usage, pressure) in [
            (10, true, Some(1), None),
            (1, true, None, None),
            (30, true, Some(1), Some(10)),
            // An idle container is read less often than every second, and its usage is needed all the same.
            (1, false, Some(1), Some(10)),
        ] {
            let plan = ReadPlan::new(needs(all), steady, Some(seconds(1)));
            assert_eq!(plan.all, seconds(all));
            assert_eq!(plan.usage, usage.map(seconds), "{all} {steady}");
            assert_eq!(plan.pressure, pressure.map(seconds), "{all} {steady}");
            assert_eq!(plan.page_age.is_some(), all > 1 || !steady);
            assert_eq!(plan.shortest(), seconds(1));
        }
    }

    #[test]
    fn the_shortest_interval_counts() {
        let needs = vec![
            need("pages", What::All, 10),
            need("history", What::Usage, 5),
            need("protection", What::Usage, 1),
            need("pages", What::Limits, 10),
        ];
        let plan = ReadPlan::new(needs, true, None);
        assert_eq!(plan.usage, Some(seconds(1)));
        let text = plan.describe();
        assert!(text.contains("all        every 10s\n"), "{text}");
        assert!(text.contains("usage      every 1s\n"), "{text}");
        assert!(
            text.contains("protection needs Usage of Marked every 1s\n"),
            "{text}"
        );
    }
}

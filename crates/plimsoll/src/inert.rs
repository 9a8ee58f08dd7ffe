//! Flags of an original that change nothing here: a command line that has them must still work, what makes no sense in
//! them is refused, and whoever wrote them is told.

use std::fmt::Debug;
use std::marker::PhantomData;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::go;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Text,
    Integer,
    Number,
    Duration,
    Modules,
    Switch,
}

impl Takes {
    fn parser(self) -> ValueParser {
        match self {
            Self::Text => value_parser!(String),
            Self::Integer => value_parser!(i64).into(),
            Self::Number => value_parser!(f32).into(),
            Self::Duration => ValueParser::new(go::signed_duration),
            Self::Modules => ValueParser::new(go::modules),
            Self::Switch => ValueParser::new(go::boolean),
        }
    }
}

/// Flags of one original, by what they take.
pub trait Flags: Debug + 'static {
    const FLAGS: &'static [(Takes, &'static [&'static str])];

    fn each() -> impl Iterator<Item = (&'static str, Takes)> {
        let groups = Self::FLAGS.iter();
        groups.flat_map(|(takes, names)| names.iter().map(move |name| (*name, *takes)))
    }
}

/// Those of the command line that will make no difference, each by its name.
#[derive(Debug)]
pub struct PassedOver<F> {
    pub names: Vec<String>,
    of: PhantomData<F>,
}

impl<F> PassedOver<F> {
    pub fn warn(&self) {
        if !self.names.is_empty() {
            let flags = self.names.join(" ");
            tracing::warn!(flags, "these flags make no difference here");
        }
    }
}

impl<F: Flags> Args for PassedOver<F> {
    fn augment_args(command: Command) -> Command {
        command.args(F::each().map(|(name, takes)| {
            let flag = Arg::new(name)
                .long(name)
                .value_parser(takes.parser())
                .action(ArgAction::Append)
                .hide(true);
            match takes {
                Takes::Switch => flag
                    .value_name("BOOL")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true"),
                // Curves are named by their numbers in the protocol, several at once.
                Takes::Integer => flag
                    .value_name("N")
                    .value_delimiter(',')
                    .allow_hyphen_values(true),
                _ => flag.value_name("VALUE").allow_hyphen_values(true),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<F: Flags> FromArgMatches for PassedOver<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = F::each().filter(|(name, _)| matches.contains_id(name));
        let mut names: Vec<String> = given.map(|(name, _)| format!("--{name}")).collect();
        names.sort();
        Ok(Self {
            names,
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

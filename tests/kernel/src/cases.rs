use anyhow::Result;
use plimsoll_test_support::cgroup::Mounts;
use plimsoll_test_support::report::Runner;

use crate::init;

pub fn run() -> Result<()> {
    let filter = init::parameter("plimsoll.filter")?;
    let mut runner = Runner::new(std::io::stdout(), filter);
    runner.case("boot", || {
        let mounts = Mounts::detect()?;
        Ok(format!("{:?}, {} hierarchies, {} cgroups", mounts.mode, mounts.hierarchies.len(), mounts.tree()?.len()))
    });
    runner.finish();
    Ok(())
}

//! `shm`: shared memory: data loaders and NCCL die of a bus error without it.

use super::memory::{gib, size_kib};
use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "shm", area: Area::Host, looks: "less than 1 GiB of shared memory where ranks run", needs: &[Probe::Host], judge };

/// KiB.
const LEAST: u64 = 1 << 20;

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let own = |key| host.told.one(key).and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
        let hosts = host.container().is_none_or(|c| c.args.iter().any(|a| a == "--ipc=host"));
        let planned = host.container().and_then(|c| size_kib(&c.shm_size));
        let Some(kib) = own("inside_shm").filter(|_| !hosts).or(if hosts { own("shm") } else { planned }) else {
            return Cell::skipped("df tells nothing of /dev/shm");
        };
        let what = format!("{} of shared memory", gib(kib));
        let hint = if hosts { "`mount -o remount,size=32g /dev/shm` there" } else { "raise container.shm_size, for example to 32g" };
        if kib < LEAST { Cell::warn(what, hint) } else { Cell::pass(what) }
    })
}

//! Golden recaps.

use super::*;
use crate::report::line::Lines;
use crate::report::loglines::Logs;
use crate::report::scene::Scene;

#[test]
fn a_run_that_failed() {
    let mut scene = Scene::new(Lines::new(Vec::new(), Cleaner::default(), Style::default(), Logs::None));
    scene.failing_run();
    let context =
        Context { logs: Some("/state/runs/r/logs".to_owned()), inventory: "wan22.yaml".to_owned(), lines: 20, ..Context::default() };
    assert_eq!(recap(&scene.state, &context).join("\n"), FAILED.trim_start_matches('\n'));
    assert_eq!(closing(&scene.state, &context), "up wan22: LEFTOVERS after 9.0 s: rank 3 failed");
}

const FAILED: &str = "
RECAP  up wan22  LEFTOVERS  after 9.0 s
  because   rank 3 failed
  ranks     0 ok  1 failed  31 stopped of 32
  host                             ok  changed  failed  ranks
  gpu01                             4        3       0  2 stopped
  gpu02                             4        3       0  1 exit 1, 1 stopped
  gpu[03-15]                        4        2       0  2 stopped
  gpu16                             3        1       1  2 stopped
  FAILED    gpu16
            remove: remove the container: docker: device or resource busy
            hint: docker rm -f orchestrate-wan22
  FIRST     rank 3 on gpu02: exit 1 after 5.0 s
    | step 1
    | Traceback (most recent call last):
    | RuntimeError: CUDA error
  others    ranks 0-2,4-6,8-31: stopped by us, signal 15 (TERM)
            rank 7: stopped by us, signal 9 (KILL)
  LEFT      gpu16: container orchestrate-wan22: device or resource busy
  logs      /state/runs/r/logs
  next      orchestrate down wan22.yaml";

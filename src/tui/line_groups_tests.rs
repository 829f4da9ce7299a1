//! Lines of many ranks in groups; bounds.

use super::*;

fn rank_log(rank: u32) -> (u32, LogFile) {
    (rank / 8, LogFile::Rank { rank, restart: 0 })
}

fn group_texts(groups: &LineGroups) -> Vec<String> {
    let (from, to) = groups.id_range();
    (from..to)
        .filter_map(|id| groups.get(id))
        .map(|group| format!("{} {}", LogWriters::of(&group.logs).format(|_| String::new()), group.text()))
        .collect()
}

#[test]
fn lines_of_all_ranks_fold_with_ranges() {
    let mut groups = LineGroups::default();
    for step in 7..9 {
        for n in (0..16).filter(|n| *n != 5 || step < 8) {
            groups.add_line(
                rank_log(n),
                0,
                0,
                &format!("[rank {n}] step {step} loss 2.3{n:02} tok/s 12,{:03} at 13:06:{n:02}.5 id 0x7f{n:02x}", 800 + n),
            );
        }
    }
    groups.add_line(rank_log(5), 0, 0, "RuntimeError: CUDA error");
    let text = group_texts(&groups);
    assert_eq!(text[0], "r[0-15] [rank [0..15]] step 7 loss [2.300..2.315] tok/s [12,800..12,815] at 13:06:00.5 id 0x7f00");
    assert_eq!(text[1], "r[0-4,6-15] [rank [0..15]] step 8 loss [2.300..2.315] tok/s [12,800..12,815] at 13:06:00.5 id 0x7f00");
    assert_eq!(text[2], "r5 RuntimeError: CUDA error");
}

#[test]
fn number_only_lines_never_fold() {
    let mut groups = LineGroups::default();
    for n in 0..4 {
        groups.add_line(rank_log(n), 0, 0, "3.14 15 [9, 2]");
    }
    assert_eq!(group_texts(&groups).len(), 4);
}

#[test]
fn late_lines_start_a_new_group() {
    let mut groups = LineGroups::default();
    groups.add_line(rank_log(0), 0, 0, "a b");
    groups.add_line(rank_log(1), WINDOW_MS, 0, "a b");
    groups.add_line((0, LogFile::Launcher), 0, 0, "c");
    groups.add_line((1, LogFile::Launcher), 0, 0, "c");
    groups.add_line((1, LogFile::Task { number: 2 }), 0, 0, "c");
    let (from, to) = groups.id_range();
    let names: Vec<String> =
        (from..to).filter_map(|id| groups.get(id)).map(|g| LogWriters::of(&g.logs).format(|hosts| format!("{hosts:?}"))).collect();
    assert_eq!(names, ["r0", "r1", "launcher [0, 1] task 2 [1]"]);
}

#[test]
fn groups_are_bounded() {
    let mut groups = LineGroups::default();
    for n in 0..(MAX_GROUPS as u32 * 3) {
        groups.add_line(rank_log(n % 7), 0, 0, &format!("line {} {}", "abcdefg".chars().nth(n as usize % 7).expect("a letter"), n));
        groups.add_line(rank_log(0), 0, 0, &"a".repeat(n as usize % 5_000));
    }
    assert!(groups.groups.len() <= MAX_GROUPS && groups.open_by_key.values().map(VecDeque::len).sum::<usize>() <= MAX_GROUPS);
    assert!(groups.groups.iter().all(|group| group.text().len() <= 2 * MAX_LINE_BYTES));
}

/// Groups are joined in their order, whatever the pace of each log, and only the newest ones.
#[test]
fn each_log_joins_the_first_group_that_it_can() {
    let mut groups = LineGroups::default();
    for step in 0..40 {
        groups.add_line(rank_log(0), step, 0, &format!("step {step} a"));
    }
    for step in 0..3 {
        groups.add_line(rank_log(1), 40, 0, &format!("step {step} a"));
        groups.add_line(rank_log(2), 40, 0, &format!("step {step} a"));
    }
    let joined =
        |rank: u32| (0..40).filter(|id| groups.get(*id).is_some_and(|group| group.logs.contains(&rank_log(rank)))).collect::<Vec<u64>>();
    assert_eq!([joined(1), joined(2)], [vec![8, 9, 10], vec![8, 9, 10]], "the first of the newest 32");
    assert_eq!(groups.id_range(), (0, 40));
}

//! Lines of many ranks in groups; bounds.

use proptest::prelude::*;

use super::*;

fn rank_log(rank: u32) -> (u32, LogFile) {
    (rank / 8, LogFile::Rank { rank, restart: 0 })
}

fn group_texts(groups: &LineGroups) -> Vec<String> {
    let (from, to) = groups.id_range();
    (from..to)
        .filter_map(|id| groups.get(id))
        .map(|group| format!("{} {}", format_writers(&group.logs, |_| String::new()), group.text()))
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
    let (from, to) = groups.id_range();
    let names: Vec<String> =
        (from..to).filter_map(|id| groups.get(id)).map(|g| format_writers(&g.logs, |hosts| format!("{hosts:?}"))).collect();
    assert_eq!(names, ["r0", "r1", "launcher [0, 1]"]);
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

proptest! {
    #[test]
    fn single_line_keeps_its_text(line in "[a-z0-9 :.,x/\\[\\]=é中-]{0,60}") {
        let (_, pieces) = tokenize_line(&line);
        let text: String = pieces.iter().map(|piece| match piece {
            LineSegment::Text(text) => text.clone(),
            LineSegment::Number { first, .. } => first.clone(),
        }).collect();
        prop_assert_eq!(text, line);
    }

    #[test]
    fn equal_keys_have_matching_segments(a in "[ab0-9 .:]{0,20}", b in "[ab0-9 .:]{0,20}") {
        let ((one, pieces), (other, more)) = (tokenize_line(&a), tokenize_line(&b));
        if one.is_some() && one == other {
            let kinds = |pieces: &[LineSegment]| pieces.iter().map(|piece| matches!(piece, LineSegment::Number { .. })).collect::<Vec<_>>();
            prop_assert_eq!(kinds(&pieces), kinds(&more));
        }
    }
}

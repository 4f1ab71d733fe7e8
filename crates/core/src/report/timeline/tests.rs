use super::*;
use crate::cpuset::CpuSet;
use crate::ids::{AppId, ThreadId};
use crate::observe::{ApplicationReading, RunnableThreads, Standing, ThreadReading};
use crate::plan::{Change, Setting, SettingKind, Weight};
use crate::time::Time;

const MS: u64 = 1_000_000;

fn thread(tid: u32) -> ThreadId {
    ThreadId { tid, generation: 0 }
}

fn applications(count: u32) -> Vec<ApplicationReading> {
    (0..count).map(|app| ApplicationReading { app: AppId(app), ..ApplicationReading::default() }).collect()
}

fn bind(pes: &str) -> Change {
    Change::Bind(pes.parse::<CpuSet>().unwrap())
}

fn weight(percent: u32) -> Change {
    Change::Set(Setting::Weight(Weight::Percent(percent)))
}

/// The row of a PE.
fn of(timeline: &Timeline, pe: u32) -> &PeOverTime {
    timeline.pes.iter().find(|row| row.pe == PeId(pe)).unwrap()
}

#[test]
fn swaps_between_two_observations_are_seen() {
    let (mut builder, app) = (TimelineBuilder::default(), AppId(0));
    let reading = |tid| ThreadReading { standing: Standing::Bound, ..ThreadReading::example(tid) };
    builder.take_change((thread(1), app), &bind("0"), Time(8 * MS));
    builder.take_change((thread(2), app), &bind("2-3"), Time(8 * MS));
    builder.take_change((thread(1), app), &Change::Free, Time(24 * MS));
    builder.take_change((thread(2), app), &bind("0"), Time(28 * MS));
    [1, 2].iter().for_each(|tid| builder.take_reading(&reading(*tid), 0.0, false, Time(40 * MS)));
    builder.take_applications(&applications(1), Time(40 * MS));
    let timeline = builder.finish(&[AppId(0)]);
    assert_eq!(timeline.column_ns, 8 * MS);
    let (fast, slow) = (of(&timeline, 0), of(&timeline, 3));
    assert_eq!((fast.first_column, &fast.bound[..]), (1, &[1.0, 1.0, 0.5, 1.0][..]));
    assert_eq!(fast.bindings, [1.0, 0.0, 1.0]);
    assert_eq!((slow.first_column, &slow.bound[..]), (1, &[0.5, 0.5, 0.25][..]), "one of two PEs");
    assert_eq!(slow.application, Some(0));
}

#[test]
fn a_higher_weight_counts_while_the_thread_is_bound() {
    let (mut builder, key) = (TimelineBuilder::default(), (thread(1), AppId(0)));
    builder.take_change(key, &weight(2_800), Time(0));
    builder.take_change(key, &bind("1"), Time(8 * MS));
    builder.take_change(key, &Change::Reset(SettingKind::Weight), Time(16 * MS));
    builder.take_change(key, &weight(50), Time(20 * MS));
    builder.take_end(thread(1), Time(24 * MS));
    builder.take_applications(&applications(1), Time(32 * MS));
    let timeline = builder.finish(&[AppId(0)]);
    let row = of(&timeline, 1);
    assert_eq!((&row.bound[..], &row.weighted[..]), (&[1.0, 1.0][..], &[1.0][..]));
    assert_eq!(row.bindings, [1.0], "a new weight is no new binding");
}

#[test]
fn a_thread_that_somebody_else_places_is_not_bound_any_more() {
    let mut builder = TimelineBuilder::default();
    builder.take_change((thread(1), AppId(0)), &bind("1"), Time(0));
    let pinned = ThreadReading { standing: Standing::SelfPinned, ..ThreadReading::example(1) };
    builder.take_reading(&pinned, 0.0, false, Time(8 * MS));
    builder.take_applications(&applications(1), Time(8 * MS));
    builder.take_applications(&applications(1), Time(32 * MS));
    assert_eq!(of(&builder.finish(&[AppId(0)]), 1).bound, [1.0]);
}

#[test]
fn ten_hours_of_phases_keep_their_sums_in_few_columns() {
    const SECONDS: u64 = 36_000;
    let (mut builder, app) = (TimelineBuilder::default(), AppId(0));
    for second in 0..SECONDS {
        let at = |ms: u64| Time((1_000 * second + ms) * MS);
        for (ms, count) in [(250, 1), (500, 4)] {
            builder.take_runnable(&RunnableThreads { app, count, only: None }, at(ms));
        }
        let reading = ThreadReading { last_pe: Some(PeId(second as u32 % 4)), ..ThreadReading::example(7) };
        builder.take_reading(&reading, 5e8, second < SECONDS / 2, at(1_000));
        builder.take_applications(&applications(1), at(1_000));
    }
    let timeline = builder.finish(&[AppId(0)]);
    let row = &timeline.runnable[0];
    assert!((COLUMNS_MAX / 2..=COLUMNS_MAX).contains(&row.mean.len()), "{}", row.mean.len());
    let (last, full) = (row.mean.len() - 1, |list: &[f64], value: f64| {
        list[1..list.len() - 1].iter().all(|seen| (seen - value).abs() < 0.03)
    });
    assert!(full(&row.mean, 3.25) && full(&row.sequential, 0.25), "{:?} {last}", &row.mean[..9]);
    let ran: f64 = timeline.pes.iter().flat_map(|row| &row.ran).sum::<f64>() * timeline.column_ns as f64;
    assert!((ran / (SECONDS as f64 * 5e8) - 1.0).abs() < 0.01, "{ran}");
    let intensive: f64 = timeline.pes.iter().flat_map(|row| &row.fpu_intensive).sum();
    assert!((intensive * timeline.column_ns as f64 / ran - 0.5).abs() < 0.01);
}

#[test]
fn small_applications_are_summed_up_and_nothing_is_lost() {
    const APPS: u32 = 1_000;
    let mut builder = TimelineBuilder::default();
    let all = applications(APPS);
    for app in 0..APPS {
        let at = Time(u64::from(app + 1) * 8 * MS);
        builder.take_change((thread(app), AppId(app)), &bind("0-1"), Time(at.0 - 8 * MS));
        let reading =
            ThreadReading { app: AppId(app), standing: Standing::Bound, ..ThreadReading::example(app) };
        builder.take_reading(&reading, f64::from(app), false, at);
        builder.take_applications(&all, at);
    }
    let timeline = builder.finish(&all.iter().map(|reading| reading.app).collect::<Vec<_>>());
    let named = timeline.pes.iter().filter(|row| row.pe == PeId(0) && row.application.is_some()).count();
    assert!((1..=2 * APPLICATIONS_MAX).contains(&named), "{named}");
    assert!(timeline.pes.iter().any(|row| row.application.is_none()), "the others together");
    let sum: f64 = timeline.pes.iter().flat_map(|row| &row.bound).sum::<f64>() * timeline.column_ns as f64;
    let thread_columns = f64::from(APPS * (APPS + 1) / 2);
    assert!((sum / (thread_columns * 8.0 * MS as f64) - 1.0).abs() < 0.01, "{sum}");
}

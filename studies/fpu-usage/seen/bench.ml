(* bench float|tree: numbers or a map for ever. *)
module M = Map.Make (Int)
let sink = ref 0.
let float () =
  let x = ref 1. and y = ref 0.5 in
  for _ = 1 to 100000 do
    let d = (!x *. !x) +. (!y *. !y) in
    x := !x -. (0.01 *. !y /. d);
    y := !y +. (0.01 *. !x /. d);
    sink := !sink +. sqrt d
  done
let tree () =
  let m = ref M.empty in
  for i = 1 to 20000 do m := M.add (i * 7919 mod 9973) i !m done;
  sink := float_of_int (M.cardinal !m)
let () = while true do (match Sys.argv.(1) with "float" -> float () | _ -> tree ()) done

// A field of glass and metal balls under an area light: floating-point work for a few seconds.
#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 8 }
camera { location <0, 6, -14> look_at <0, 1, 0> angle 45 }
background { rgb <0.6, 0.7, 0.9> }
light_source {
  <8, 14, -10> rgb 1.2
  area_light <3, 0, 0>, <0, 0, 3>, 5, 5 adaptive 1 jitter
}
plane { y, 0 pigment { checker rgb 0.9, rgb 0.25 } finish { reflection 0.15 } normal { bumps 0.05 scale 0.3 } }
#declare Random = seed(42);
#for (Row, -4, 4)
  #for (Column, -4, 4)
    sphere {
      <Column * 1.5, 0.6 + rand(Random), Row * 1.5>, 0.6
      #if (mod(Row + Column, 2) = 0)
        pigment { rgbf <0.9, 0.95, 1, 0.9> }
        finish { specular 0.8 reflection 0.1 }
        interior { ior 1.5 }
      #else
        pigment { rgb <rand(Random), rand(Random), rand(Random)> }
        finish { metallic specular 0.7 reflection 0.4 }
      #end
    }
  #end
#end
